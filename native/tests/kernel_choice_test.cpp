// SPECQUANT_ISA chooses the kernels. CMake runs this with each name, and with one that is none.
#include "cpu/kernels.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/kernel_cases.h"

namespace specquant::cpu {
namespace {

using namespace reference;

TEST_CASE("SPECQUANT_ISA chooses the table") {
  const char* wanted = std::getenv("SPECQUANT_ISA");
  if (wanted != nullptr && kernels(wanted) == nullptr) {
    CHECK_THROWS_AS(kernels(), std::runtime_error);
    return;
  }
  const std::string expected = wanted != nullptr ? wanted : tables().back()->name;
  CHECK(kernels().name == expected);
}

}  // namespace
}  // namespace specquant::cpu
