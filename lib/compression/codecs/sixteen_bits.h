// Untrusted 16-bit words, judged without decoding them. Private to lib/compression.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fusionllm::compression::codecs {

// The greatest of the words, each and-ed with `bits`; 0 where there are none.
uint16_t MaxWord(std::span<const std::byte> words, uint16_t bits);

}  // namespace fusionllm::compression::codecs
