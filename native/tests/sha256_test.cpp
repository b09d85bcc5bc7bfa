// SHA-256 against published examples.
#include "core/sha256.h"

#include <doctest/doctest.h>

#include <span>
#include <string>

namespace specquant::core {
namespace {

TEST_CASE("SHA-256 of the examples of FIPS 180") {
  const auto hash = [](const std::string& text) {
    return sha256_hex(std::as_bytes(std::span(text)));
  };
  CHECK(hash("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(hash("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(hash(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

}  // namespace
}  // namespace specquant::core
