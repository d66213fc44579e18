#include "lib/kube/watch/json_reading.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace fusionllm::kube {
namespace {

std::string NameIn(absl::string_view json) {
  std::string name;
  const absl::Status status = ReadJson(json, [&](simdjson::ondemand::object root) { name = TextOf(root["name"].value()); });
  return status.ok() ? name : std::string(status.message());
}

TEST(JsonReadingTest, OneDocumentMayBeReadWithinAnother) {
  std::string outer, inner;
  const absl::Status status = ReadJson(R"({"name": "outer", "text": "{\"name\": \"inner\"}", "last": "still outer"})", [&](auto root) {
    inner = NameIn(TextOf(root["text"].value()));
    outer = TextOf(root["last"].value());
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(inner, "inner");
  EXPECT_EQ(outer, "still outer");
}

TEST(JsonReadingTest, AParserIsGoodAsNewAfterTextThatIsNoJson) {
  for (const char* broken : {"", "[", R"({"name": )", R"({"name": "a)", "{}"}) {
    EXPECT_NE(NameIn(broken).find("not the JSON of a Kubernetes object"), std::string::npos) << broken;
    EXPECT_EQ(NameIn(R"({"name": "good"})"), "good");
  }
}

TEST(JsonReadingTest, NothingOfALongerDocumentIsReadAfterIt) {
  const std::string longer = R"({"name": "long", "padding": ")" + std::string(size_t{300} << 10, 'x') + R"("})";
  EXPECT_EQ(NameIn(longer), "long");
  EXPECT_EQ(NameIn(R"({"name": "short)"), NameIn(R"({"name": "sh)"));
  EXPECT_EQ(NameIn(R"({"name": "short"})"), "short");
}

TEST(JsonReadingTest, MoreThreadsThanParsersAreKeptReadAtTheSameTime) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 12; ++t) {
    threads.emplace_back([t] {
      const std::string name = std::string(static_cast<size_t>(t + 1) * 500, static_cast<char>('a' + t));
      for (int i = 0; i < 200; ++i) EXPECT_EQ(NameIn(R"({"name": ")" + name + "\"}"), name);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace fusionllm::kube
