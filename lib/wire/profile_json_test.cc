#include "lib/wire/profile_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_replace.h"

namespace fusionllm::wire {
namespace {

using ::testing::HasSubstr;

DeviceProfile Device(const std::string& name, const std::string& site) {
  return {
      .name = name,
      .site = site,
      .backend = "cpu",
      .threads = 2,
      .memory_bytes = int64_t{2} << 30,
      .compute_scale = 0.3,
      .spare = name == "spare-0",
      .ops = {{"linear{out=3}(f32[2, 4])", {.seconds = 1.0 / 3, .workspace_bytes = 64, .op_class = "matmul", .flops = 48, .bytes = 92}}},
      .rates = {{"matmul",
                 {.overhead_s = 1e-6,
                  .seconds_per_flop = 1e-11,
                  .seconds_per_byte = 1e-10,
                  .relative_error = 0.125,
                  .samples = 12,
                  .overhead_ci95_s = 1e-7,
                  .seconds_per_byte_ci95 = 3e-12}}},
      .update_seconds_per_element = 1e-9,
      .data_seconds_per_byte = {{"text", 2e-10}},
      .codecs = {{"int8",
                  {.encode_seconds = 2e-10,
                   .decode_seconds = 1e-10,
                   .encode_message_seconds = 9e-6,
                   .decode_message_seconds = 6e-6,
                   .encode_kept_seconds = 3e-9,
                   .decode_kept_seconds = 5e-9}}}};
}

ProfilesDocument Document() {
  return {.devices = {Device("a-0", "a"), Device("b-0", "b"), Device("spare-0", "b")},
          .links = {{"a-0", "b-0", 0.08, 2.5e6},
                    {"b-0", "a-0", 0.08, 1.25e6},
                    {"a-0", "spare-0", 0.01, 1e7, "link:a-0->spare-0", 7, 0.02, 1e-4, std::nullopt, 0.004}}};
}

TEST(ProfileJson, ProfileReadsBackAsItWas) {
  const auto parsed = ParseProfile(PrintProfile(Device("a-0", "a")));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, Device("a-0", "a"));
}

TEST(ProfileJson, DocumentReadsBackAsItWas) {
  const auto parsed = ParseProfiles(PrintProfiles(Document()));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, Document());
}

// Files are compared and kept under version control: what is in them does not depend on the order in which it came.
TEST(ProfileJson, EqualDocumentsGiveTheSameBytes) {
  const std::string text = PrintProfiles(Document());
  EXPECT_EQ(PrintProfiles(*ParseProfiles(text)), text);
  EXPECT_THAT(text, HasSubstr(R"("overhead_seconds_ci95":1e-07)"));
  EXPECT_THAT(text, HasSubstr(R"("version":1)"));
}

TEST(ProfileJson, RejectsNewerDocumentsAndReadsUnversionedOnes) {
  const std::string text = PrintProfiles(Document());
  const auto old = ParseProfiles(absl::StrReplaceAll(text, {{R"("version":1)", R"("something":1)"}}));
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(*old, Document());
  const auto newer = ParseProfiles(absl::StrReplaceAll(text, {{R"("version":1)", R"("version":2)"}}));
  EXPECT_EQ(std::string(newer.status().message()), "profiles.version: 2 is newer than what this program reads, which is 1");
}

TEST(ProfileJson, CodecsOfAnOlderDocumentTakeNothingForAMessage) {
  const std::string text =
      absl::StrReplaceAll(PrintProfile(Device("a-0", "a")), {{"_message_seconds", "_message_"}, {"_kept_seconds", "_kept_"}});
  const auto old = ParseProfile(text);
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_EQ(old->codecs.at("int8"), (CodecProfile{.encode_seconds = 2e-10, .decode_seconds = 1e-10}));
}

TEST(ProfileJson, RatesAndDataMayBeMissing) {
  DeviceProfile bare = Device("a-0", "a");
  std::string text = PrintProfile(bare);
  for (const char* field : {"\"rates\":", "\"data\":"}) {
    ASSERT_THAT(text, HasSubstr(field));
    text = absl::StrReplaceAll(text, {{field, "\"of a newer peer\":"}});
  }
  bare.rates.clear();
  bare.data_seconds_per_byte.clear();
  const auto parsed = ParseProfile(text);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, bare);
}

TEST(ProfileJson, WrongFieldsAreNamed) {
  const std::string good = PrintProfiles(Document());
  const std::vector<std::vector<std::string>> cases = {
      {"\"compute_scale\":0.3", "\"compute_scale\":0", "profiles.devices[0].compute_scale"},
      {"\"name\":\"b-0\"", "\"name\":\"a-0\"", "'a-0' stands twice"},
      {"\"dst\":\"b-0\"", "\"dst\":\"c-0\"", "profiles.links[0].dst: no device 'c-0'"},
      {"\"dst\":\"b-0\"", "\"dst\":\"a-0\"", "is the source itself"},
      {"\"rtt_seconds\":0.08", "\"rtt_seconds\":-1", "profiles.links[0].rtt_seconds"},
      {"\"threads\":2", "\"threads\":2.5", "profiles.devices[0].threads: must be a whole number"},
      {"\"samples\":12", "\"samples\":0", "profiles.devices[0].rates[\"matmul\"].samples"},
      {"\"overhead_seconds\":1e-06", "\"overhead_seconds\":-1", "rates[\"matmul\"].overhead_seconds"},
      {"\"seconds_per_byte\":2e-10", "\"seconds_per_byte\":null", "profiles.devices[0].data[\"text\"].seconds_per_byte"},
      {"\"overhead_seconds_ci95\":1e-07", "\"overhead_seconds_ci95\":-1", "rates[\"matmul\"].overhead_seconds_ci95"},
      {"\"latency_seconds_ci95\":0.0001", "\"latency_seconds_ci95\":\"?\"", "profiles.links[2].latency_seconds_ci95"},
      {"\"latency_seconds\":0.004", "\"latency_seconds\":-1", "profiles.links[2].latency_seconds"},
      {"\"samples\":7", "\"samples\":-7", "profiles.links[2].samples"},
      {"\"version\":1", "\"version\":0", "profiles.version"},
      {"\"spare\":true", "\"spare\":\"yes\"", "profiles.devices[2].spare"},
      {"\"workspace_bytes\":64", "\"workspace_bytes\":-1", "profiles.devices[0].ops[\"linear{out=3}(f32[2, 4])\"].workspace_bytes"},
  };
  for (const auto& c : cases) {
    ASSERT_THAT(good, HasSubstr(c[0]));
    const auto parsed = ParseProfiles(absl::StrReplaceAll(good, {{c[0], c[1]}}));
    EXPECT_THAT(std::string(parsed.status().message()), HasSubstr(c[2])) << c[1];
  }
}

}  // namespace
}  // namespace fusionllm::wire
