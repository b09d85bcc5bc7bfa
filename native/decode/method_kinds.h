// The tables behind a method's parts: what every part of it has in common.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/fields.h"
#include "decode/method.h"

namespace specquant::decode {

// A kind that this build serves: reads its keys and puts its part into the method.
struct Kind {
  const char* name;
  void (*parse)(core::Fields&, Method&);
};

// Reads the object under `key` by its kind; `fallback` is the kind where the object is left out.
// `protocol` are all names that the protocol has. Returns the kind.
std::string parse_part(core::Fields& fields, const std::string& key, const char* fallback,
                       std::span<const Kind> served, std::span<const char* const> protocol,
                       Method& method);
// As parse_part(), of an object that is at hand.
void parse_kind(core::Fields part, const std::string& name, std::span<const Kind> served,
                std::span<const char* const> protocol, Method& method);
std::vector<std::string> names_of(std::span<const Kind> kinds);

// The parts that a cascade has once more inside.
void parse_drafter(core::Fields& fields, const std::string& key, Method& method);
void parse_shape(core::Fields& fields, const std::string& key, Method& method);

// Returns the kind.
std::string parse_acceptance(core::Fields& fields, const std::string& key, Method& method);

// Refuses a drafter without a shape and a shape without a drafter, or one that the drafter does not
// propose. `drafter` and `shape` are the keys.
void require_fit(const core::Fields& fields, const std::string& drafter, const std::string& shape,
                 const Method& method);

}  // namespace specquant::decode
