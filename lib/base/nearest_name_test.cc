#include "lib/base/nearest_name.h"

#include <vector>

#include "gtest/gtest.h"

namespace fusionllm::base {
namespace {

TEST(NearestNameTest, SuggestsTheNearestChoiceOnly) {
  const std::vector<std::string> choices = {"globalBatchSize", "microBatchSize", "steps"};
  EXPECT_EQ(NearestName("global_batch_size", choices), "globalBatchSize");
  EXPECT_EQ(NearestName("stps", choices), "steps");
  EXPECT_EQ(NearestName("colour", choices), "");
  EXPECT_EQ(NearestName("", choices), "");
}

TEST(NearestNameTest, APartOfAChoiceOrAChoiceThatIsAPartIsMeant) {
  const std::vector<std::string> gpus = {"amd-mi300x", "nvidia-a100-40gb", "nvidia-a100-80gb", "nvidia-h100-pcie", "nvidia-h100-sxm",
                                         "nvidia-l4",  "nvidia-l40s",      "nvidia-rtx-4090",  "nvidia-t4"};
  const struct {
    const char* text;
    const char* meant;
  } cases[] = {{"h100", "nvidia-h100-sxm"},
               {"nvidia-h100", "nvidia-h100-sxm"},
               {"H100-SXM5", "nvidia-h100-sxm"},
               {"h100_pcie", "nvidia-h100-pcie"},
               {"A100", "nvidia-a100-40gb"},
               {"a100-80gb", "nvidia-a100-80gb"},
               {"L4", "nvidia-l4"},
               {"rtx4090", "nvidia-rtx-4090"},
               {"4090", "nvidia-rtx-4090"},
               {"mi300x", "amd-mi300x"},
               {"nvidia-l5", "nvidia-l4"},
               {"tpu-v5", ""},
               {"cpu", ""},
               {"x", ""},
               {"", ""}};
  for (const auto& c : cases) EXPECT_EQ(NearestNameOrPart(c.text, gpus), c.meant) << c.text;
  const std::vector<std::string> sizes = {"tiny", "small", "medium", "large", "xl"};
  EXPECT_EQ(NearestNameOrPart("gpt2-small", sizes), "small");
  EXPECT_EQ(NearestNameOrPart("gpt2-xl", sizes), "xl");
  EXPECT_EQ(NearestNameOrPart("gpt2", sizes), "");
  EXPECT_EQ(NearestNameOrPart("larg", sizes), "large");
}

TEST(NearestNameTest, FoldNameIgnoresCaseAndSeparators) {
  EXPECT_EQ(NormalizeName("per_device_Batch-Size"), "perdevicebatchsize");
  EXPECT_EQ(NormalizeName(std::string(100, 'a')).size(), 64u);
}

}  // namespace
}  // namespace fusionllm::base
