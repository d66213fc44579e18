// The reader against damaged files: whatever the bytes, it answers with a Status or with tensors that lie inside the file.
#include <filesystem>
#include <random>

#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/checkpoint/testing/sample.h"

namespace fusionllm::checkpoint {
namespace {

constexpr uint32_t kMutations = 6000;

std::string Mutate(std::string bytes, size_t header_end, std::mt19937& engine) {
  const auto below = [&](size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(engine); };
  constexpr absl::string_view kLikely = "0123456789[]{},:\"-eE.\\";
  for (size_t edits = 1 + below(3); edits > 0; --edits) {
    const size_t at = below(8) == 0 ? below(8) : 8 + below(header_end - 8);
    if (bytes.size() < 16 || at >= bytes.size()) break;
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes[at] = kLikely[below(kLikely.size())];
        break;
      case 2:
        bytes.insert(at, 1, kLikely[below(kLikely.size())]);
        break;
      case 3:
        bytes.erase(at, 1 + below(4));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), below(60)));
        break;
      default:
        bytes.resize(below(bytes.size()));
    }
  }
  return bytes;
}

TEST(SafetensorsMutationTest, NeverCrashesNorReadsOutsideTheFile) {
  const base::TempFolder folder;
  SampleTensors sample;
  std::vector<NamedTensor> tensors = sample.Make({"transformer.h.0.attn.c_attn.weight", "b"}, 1);
  const std::vector<NamedTensor> more = sample.Make({"c", "d"}, 2, {7});
  tensors.insert(tensors.end(), more.begin(), more.end());
  ASSERT_TRUE(WriteSafetensors(folder / "good", tensors).ok());
  const std::string good = base::ReadWholeFile(folder / "good");
  const auto header_end = good.size() - 2 * (6 + 7) * sizeof(float);
  uint32_t opened = 0;
  for (uint32_t seed = 0; seed < kMutations; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937 engine(seed);
    const std::string bytes = Mutate(good, header_end, engine);
    std::filesystem::remove(folder / "bad");  // a new file each time: ext4 flushes one that is rewritten, at a hundred times the cost
    const auto file = SafetensorsFile::Open(folder.Write("bad", bytes));
    if (!file.ok()) {
      EXPECT_FALSE(file.status().message().empty());
      EXPECT_LT(file.status().message().size(), 20'000u);
      continue;
    }
    ++opened;
    for (const TensorEntry& entry : file->tensors()) {
      ASSERT_LE(entry.end, static_cast<int64_t>(bytes.size()));
      if (!entry.dtype) continue;
      tensor::Tensor into({*entry.dtype, entry.shape});
      ASSERT_EQ(static_cast<int64_t>(into.bytes().size()), entry.bytes());
      EXPECT_TRUE(file->Read(entry.name, into.view()).ok());
    }
  }
  // Some damage goes unseen (a character of a name): both ways must have been taken for the test to mean something.
  EXPECT_GT(opened, 10u);
  EXPECT_LT(opened, kMutations / 2);
}

}  // namespace
}  // namespace fusionllm::checkpoint
