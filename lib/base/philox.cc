#include "lib/base/philox.h"

#include <cmath>

namespace fusionllm::base {
namespace {

constexpr uint32_t kMultiplier0 = 0xD2511F53;
constexpr uint32_t kMultiplier1 = 0xCD9E8D57;
constexpr uint32_t kWeyl0 = 0x9E3779B9;
constexpr uint32_t kWeyl1 = 0xBB67AE85;
constexpr int kRounds = 10;

}  // namespace

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{kMultiplier0} * counter[0];
    const uint64_t product1 = uint64_t{kMultiplier1} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t StableHash(absl::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

CounterRng::CounterRng(uint64_t seed, absl::string_view name)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, stream_(StableHash(name)) {}

uint32_t CounterRng::Uint32(uint64_t index) const {
  const uint64_t block = index / 4;
  return Philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), static_cast<uint32_t>(stream_),
                     static_cast<uint32_t>(stream_ >> 32)},
                    key_)[index % 4];
}

float CounterRng::Uniform(uint64_t index) const { return static_cast<float>(Uint32(index) >> 8) * 0x1p-24f; }

float CounterRng::Normal(uint64_t index) const {
  // In double, then rounded once: libm's float functions differ between versions in the last bit more often than its double ones.
  const double u = (static_cast<double>(Uint32(2 * index)) + 0.5) * 0x1p-32;
  const double v = (static_cast<double>(Uint32(2 * index + 1)) + 0.5) * 0x1p-32;
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * 3.14159265358979323846 * v));
}

uint64_t CounterRng::Below(uint64_t index, uint64_t bound) const {
  const uint64_t word = uint64_t{Uint32(2 * index)} << 32 | Uint32(2 * index + 1);
  return static_cast<uint64_t>((static_cast<unsigned __int128>(word) * bound) >> 64);
}

}  // namespace fusionllm::base
