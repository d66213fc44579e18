// CRC-32C (Castagnoli, RFC 3720 appendix B.4). Uses the SSE4.2 instruction where the CPU has it (about 8 GB/s), tables elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace fusionllm::transport {

// The checksum of the concatenation of what gave `crc` and `bytes`; start with 0.
uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes);

namespace internal {
uint32_t ExtendCrc32cByTable(uint32_t crc, std::span<const std::byte> bytes);
}

}  // namespace fusionllm::transport
