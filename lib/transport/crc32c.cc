#include "lib/transport/crc32c.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace fusionllm::transport {
namespace {

constexpr uint32_t kPolynomialReflected = 0x82f63b78;

// tables[k][b]: the effect of byte b followed by k zero bytes, so that eight bytes are folded in one step.
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomialReflected : 0);
    tables[0][b] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (uint32_t b = 0; b < 256; ++b) tables[k][b] = (tables[k - 1][b] >> 8) ^ tables[0][tables[k - 1][b] & 0xff];
  }
  return tables;
}
constexpr auto kTables = MakeTables();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t ExtendByInstruction(uint32_t crc, const std::byte* p, size_t n) {
  uint64_t state = ~crc;
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = _mm_crc32_u64(state, word);
  }
  auto tail = static_cast<uint32_t>(state);
  for (; n > 0; ++p, --n) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*p));
  return ~tail;
}
#endif

}  // namespace

namespace internal {

uint32_t ExtendCrc32cByTable(uint32_t crc, std::span<const std::byte> bytes) {
  uint32_t state = ~crc;
  const std::byte* p = bytes.data();
  size_t n = bytes.size();
  for (; n >= 8; p += 8, n -= 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const uint32_t mixed = std::to_integer<uint32_t>(p[i]) ^ (i < 4 ? (state >> (8 * i)) & 0xff : 0);
      next ^= kTables[7 - i][mixed];
    }
    state = next;
  }
  for (; n > 0; ++p, --n) state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<uint32_t>(*p)) & 0xff];
  return ~state;
}

}  // namespace internal

uint32_t ExtendCrc32c(uint32_t crc, std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  if (has_instruction) return ExtendByInstruction(crc, bytes.data(), bytes.size());
#endif
  return internal::ExtendCrc32cByTable(crc, bytes);
}

}  // namespace fusionllm::transport
