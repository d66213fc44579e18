#include "lib/compression/codecs/sixteen_bits.h"

#include <algorithm>
#include <cstring>

namespace fusionllm::compression::codecs {

uint16_t MaxWord(std::span<const std::byte> words, uint16_t bits) {
  uint16_t greatest = 0;
  for (size_t i = 0; i < words.size() / 2; ++i) {
    uint16_t word;
    std::memcpy(&word, words.data() + 2 * i, 2);
    greatest = std::max<uint16_t>(greatest, word & bits);
  }
  return greatest;
}

}  // namespace fusionllm::compression::codecs
