#include "lib/checkpoint/manifest.h"

#include <sys/stat.h>

#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/testing/sample.h"
#include "nlohmann/json.hpp"

namespace fusionllm::checkpoint {
namespace {

using ::testing::HasSubstr;

Manifest Full() {
  Manifest manifest = SampleManifest(50);
  manifest.sequence = 3;
  manifest.seed = ~uint64_t{0};
  manifest.files = {{"model.safetensors", 1234, std::string(64, 'a'), {}}, {"optimizer.safetensors", 0, std::string(64, '0'), {}}};
  manifest.codec_limit = "int8";
  manifest.codec_limits = {{"block.1", false, "topk@8:int8"}, {"block.1", true, "fp16"}};
  manifest.contents = {{"spec.data.path", "1000 samples"}, {"spec.model.graph.file", "12 bytes"}};
  manifest.resolved_job = "a: \"b\"\nc: 'é'\n";
  return manifest;
}

// As version 1 had it, without a checksum: what a test changes in it is not reported as damage.
std::string Unsealed(const Manifest& manifest) {
  nlohmann::ordered_json document = nlohmann::ordered_json::parse(FormatManifest(manifest));
  document.erase("sha256");
  document["format_version"] = 1;
  return document.dump(2);
}

TEST(ManifestTest, AnyBitThatIsAnotherIsNoticedButInWhiteSpace) {
  const std::string good = FormatManifest(Full());
  int unharmed = 0;
  for (size_t i = 0; i < 8 * good.size(); ++i) {
    std::string flipped = good;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << i % 8));
    const absl::StatusOr<Manifest> read = ParseManifest(flipped);
    if (!read.ok()) continue;
    EXPECT_EQ(nlohmann::json::parse(flipped), nlohmann::json::parse(good)) << "byte " << i / 8;
    ++unharmed;
  }
  EXPECT_LT(unharmed, static_cast<int>(good.size()));
}

// The checksum is of a copy of the document, which ended the process.
TEST(ManifestTest, AManifestThatNestsWithoutEndIsRefused) {
  std::string deep = FormatManifest(Full());
  const std::string lists = std::string(300'000, '[') + std::string(300'000, ']');
  deep.insert(deep.find('{') + 1, "\"extra\": " + lists + ",");
  EXPECT_THAT(ParseManifest(deep).status().message(), HasSubstr("the manifest is no JSON object"));
}

TEST(ManifestTest, ManifestsFromBeforeTheChecksumAreRead) {
  const auto old = ParseManifest(Unsealed(Full()));
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->samples_consumed, 1600);
  EXPECT_THAT(ParseManifest(absl::StrReplaceAll(Unsealed(Full()), {{"\"format_version\": 1", "\"format_version\": 2"}})).status().message(),
              HasSubstr("'sha256' is missing"));
}

TEST(ManifestTest, WhatIsNoFileIsRefusedAtOnce) {
  const base::TempFolder folder;
  folder.Write("piped/other", "");
  ASSERT_EQ(mkfifo((folder / "piped/manifest.json").c_str(), 0600), 0);
  EXPECT_THAT(LoadManifest(folder / "piped").status().message(), HasSubstr("manifest.json is no regular file"));
}

TEST(ManifestTest, ReadsBackWhatItWrote) {
  const auto back = ParseManifest(FormatManifest(Full()));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(FormatManifest(*back), FormatManifest(Full()));
  EXPECT_EQ(back->seed, ~uint64_t{0});
  EXPECT_EQ(back->samples_consumed, 1600);
  EXPECT_EQ(back->files[0].bytes, 1234);
  EXPECT_EQ(back->resolved_job, Full().resolved_job);
  EXPECT_EQ(back->codec_limit, "int8");
  EXPECT_EQ(back->codec_limits, Full().codec_limits);
  EXPECT_EQ(back->contents, Full().contents);
}

TEST(ManifestTest, BelongsToTheStepOfItsFolder) {
  const base::TempFolder folder;
  for (const char* name : {"step-000050", "step-000051", "my-copy"})
    folder.Write(absl::StrCat(name, "/manifest.json"), FormatManifest(Full()));
  EXPECT_TRUE(LoadManifest(folder / "step-000050").ok());
  EXPECT_TRUE(LoadManifest(folder / "my-copy").ok());
  EXPECT_THAT(LoadManifest(folder / "step-000051").status().message(), HasSubstr("is of step 50, its folder of step 51"));
}

TEST(ManifestTest, NamesTheKeyThatIsWrong) {
  const std::string good = Unsealed(Full());
  const auto error = [&](absl::string_view from, absl::string_view to) {
    EXPECT_THAT(good, HasSubstr(std::string(from)));
    return std::string(ParseManifest(absl::StrReplaceAll(good, {{from, to}})).status().message());
  };
  EXPECT_THAT(error("\"step\"", "\"stop\""), HasSubstr("'step' is missing"));
  EXPECT_THAT(error("\"step\": 50", "\"step\": -1"), HasSubstr("'step' is negative"));
  EXPECT_THAT(error("\"step\": 50", "\"step\": 1e300"), HasSubstr("'step'"));
  EXPECT_THAT(error("\"step\": 50", "\"step\": 18446744073709551615"), HasSubstr("'step' is out of range"));
  EXPECT_THAT(error("\"size\": 0", "\"size\": 4611686018427387904"), HasSubstr("'size' of optimizer.safetensors is out of range"))
      << "the sum of all sizes would overflow";
  EXPECT_THAT(error("\"sample\"", "7"), HasSubstr("'job_name'"));
  EXPECT_THAT(error("\"model.safetensors\"", "\"../model.safetensors\""), HasSubstr("../model"));
  EXPECT_THAT(error("\"model.safetensors\"", "\"optimizer.safetensors\""), HasSubstr("twice"));
  EXPECT_THAT(error(std::string(64, 'a'), "xyz"), HasSubstr("no SHA-256"));
  EXPECT_THAT(error("\"format_version\": 1", "\"format_version\": 4"), HasSubstr("version is 4"));
  EXPECT_THAT(error("\"gradient\": true", "\"gradient\": 1"), HasSubstr("'gradient'"));
  EXPECT_THAT(error("\"codec\": \"fp16\"", "\"coder\": 2"), HasSubstr("'codec'"));
  EXPECT_THAT(error("\"rng\"", "\"rgn\""), HasSubstr("'rng.seed'"));
  EXPECT_THAT(ParseManifest("[").status().message(), HasSubstr("no JSON object"));
}

}  // namespace
}  // namespace fusionllm::checkpoint
