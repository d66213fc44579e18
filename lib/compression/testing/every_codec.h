// The codecs that tests run on: all that are registered, so that none is forgotten.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

namespace fusionllm::compression::testing {

// Text forms of all that send every value, in the order of their kinds, then `selecting`, those of codecs with parameters.
std::vector<std::string> EveryCodec(std::initializer_list<const char*> selecting);

}  // namespace fusionllm::compression::testing
