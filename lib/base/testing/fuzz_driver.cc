// The seeded test of a decoder (fuzz.h). FUSIONLLM_MUTATIONS=N tries N inputs instead of 10'000.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>

#include "lib/base/philox.h"
#include "lib/base/testing/fuzz.h"

namespace fusionllm::base {
namespace {

class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed, "fuzz") {}
  size_t Below(size_t bound) { return static_cast<size_t>(rng_.Below(next_++, bound)); }

 private:
  CounterRng rng_;
  uint64_t next_ = 0;
};

// What decoders of text and of numbers trip over, whatever they decode.
constexpr const char* kWords[] = {"0",
                                  "-1",
                                  "18446744073709551615",
                                  "9223372036854775808",
                                  "-9223372036854775808",
                                  "1e999",
                                  "nan",
                                  "null",
                                  "true",
                                  "[]",
                                  "{}",
                                  "\"\"",
                                  "\\u0000",
                                  "\xff",
                                  "\xc3",
                                  "../",
                                  "\n",
                                  "\t"};

std::string Mutant(const std::vector<std::string>& seeds, const std::vector<std::string>& words, uint64_t number) {
  Draw draw(number);
  std::string bytes = seeds[number % seeds.size()];
  for (size_t edits = 1 + draw.Below(4); edits > 0; --edits) {
    if (bytes.empty()) bytes = "\n";
    // Lies do most harm near the beginning, where headers are.
    const size_t reach = draw.Below(3) == 0 ? std::min<size_t>(bytes.size(), 96) : bytes.size();
    const size_t at = draw.Below(reach);
    const size_t length = 1 + draw.Below(24);
    switch (draw.Below(9)) {
      case 0:
        bytes[at] = static_cast<char>(draw.Below(256));
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << draw.Below(8)));
        break;
      case 2:
        bytes[at] = bytes[draw.Below(bytes.size())];
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(draw.Below(bytes.size()), length));
        break;
      case 5: {
        bytes.replace(at, draw.Below(2) * length, words[draw.Below(words.size())]);
        break;
      }
      case 6: {
        const std::string& other = seeds[draw.Below(seeds.size())];
        bytes.replace(at, draw.Below(length), other, draw.Below(other.size() + 1), length);
        break;
      }
      case 7:
        std::memset(bytes.data() + at, draw.Below(2) == 0 ? 0 : 0xff, std::min(bytes.size() - at, draw.Below(9)));
        break;
      default:
        if (draw.Below(4) == 0) bytes.resize(draw.Below(bytes.size()));
    }
  }
  return bytes;
}

bool Accepts(absl::string_view input) {
  // A copy of the exact size, so that a sanitizer sees a read one byte too far.
  const std::unique_ptr<char[]> copy(new char[input.size()]);
  std::copy(input.begin(), input.end(), copy.get());
  return TheFuzzTarget().accepts(absl::string_view(copy.get(), input.size()));
}

TEST(FuzzTest, SeedsAreAccepted) {
  const std::vector<std::string> seeds = TheFuzzTarget().seeds();
  ASSERT_FALSE(seeds.empty());
  for (size_t i = 0; i < seeds.size(); ++i) EXPECT_TRUE(Accepts(seeds[i])) << "seed " << i;
}

TEST(FuzzTest, DamageIsRefusedOrHarmless) {
  const std::vector<std::string> seeds = TheFuzzTarget().seeds();
  std::vector<std::string> words = TheFuzzTarget().words();
  words.insert(words.end(), std::begin(kWords), std::end(kWords));
  const char* wanted = std::getenv("FUSIONLLM_MUTATIONS");
  const uint64_t mutants = wanted == nullptr ? 10'000 : std::strtoull(wanted, nullptr, 10);
  uint64_t accepted = 0;
  for (uint64_t number = 0; number < mutants; ++number) {
    SCOPED_TRACE(::testing::Message() << "mutant " << number);
    accepted += Accepts(Mutant(seeds, words, number));
  }
  EXPECT_GT(accepted, 0u) << "damage that nothing survives tests only the first check";
  EXPECT_LT(accepted, mutants) << "damage that is never refused tests nothing";
}

TEST(FuzzTest, EveryBeginningOfASeedIsRefusedOrHarmless) {
  for (const std::string& seed : TheFuzzTarget().seeds()) {
    const size_t step = 1 + seed.size() / 2'000;
    for (size_t length = 0; length < seed.size(); length += step) Accepts(absl::string_view(seed).substr(0, length));
  }
}

}  // namespace
}  // namespace fusionllm::base
