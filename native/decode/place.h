// Which token of which request is spoken of.
#pragma once

namespace specquant::decode {

// A token of a request, by its index in prompt and output together.
struct Place {
  int request = 0;
  int position = 0;
};

}  // namespace specquant::decode
