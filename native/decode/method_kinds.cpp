#include "decode/method_kinds.h"

#include <algorithm>

#include "core/errors.h"
#include "core/names.h"

namespace specquant::decode {

using core::bad_request;
using core::Error;
using core::ErrorType;
using core::Fields;

std::vector<std::string> names_of(std::span<const Kind> kinds) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds) names.emplace_back(kind.name);
  return names;
}

std::string parse_part(Fields& fields, const std::string& key, const char* fallback,
                       std::span<const Kind> served, std::span<const char* const> protocol,
                       Method& method) {
  static const nlohmann::json nothing = nlohmann::json::object();
  const bool given = fields.has(key);
  Fields part = given ? fields.object(key) : Fields(nothing, fields.path_of(key));
  const std::string name = given ? part.text("kind") : fallback;
  parse_kind(part, name, served, protocol, method);
  return name;
}

void parse_kind(Fields part, const std::string& name, std::span<const Kind> served,
                std::span<const char* const> protocol, Method& method) {
  const auto kind = std::ranges::find_if(served, [&](const Kind& k) { return name == k.name; });
  if (kind == served.end()) {
    const std::vector<std::string> names = names_of(served);
    if (std::ranges::find(protocol, name) != protocol.end()) {
      throw Error(ErrorType::unsupported, "'" + part.path_of("kind") + "' " + core::quoted(name) +
                                              " is not served by this backend. It serves " +
                                              core::list_of(names) + ".");
    }
    bad_request("'" + part.path_of("kind") + "' is " + core::quoted(name) + ", which is unknown. " +
                core::suggestion(name, names));
  }
  kind->parse(part, method);
  part.finish();
}

void require_fit(const Fields& fields, const std::string& drafter, const std::string& shape,
                 const Method& method) {
  const std::string where = "'" + fields.path_of(shape) + "'";
  if (method.make_drafter && method.shape.nodes == 0) {
    bad_request(where + " must say how much the drafter proposes, e.g. " +
                R"({"kind": "chain", "gamma": 3}.)");
  }
  if (!method.make_drafter && method.shape.nodes != 0) {
    bad_request(where + R"( must be {"kind": "none"} where there is no drafter.)");
  }
  if (!method.drafts_trees && !method.shape.is_chain()) {
    bad_request(where + " is a tree; the drafter under '" + fields.path_of(drafter) +
                "' proposes chains only.");
  }
}

}  // namespace specquant::decode
