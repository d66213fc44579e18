#include "lib/kube/watch/line_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace fusionllm::kube {
namespace {

using ::testing::ElementsAre;

absl::Status PushAll(LineSplitter& splitter, absl::string_view text, size_t chunk, std::vector<std::string>& lines) {
  for (size_t at = 0; at < text.size(); at += chunk) {
    const absl::Status status = splitter.Push(text.substr(at, chunk), [&](absl::string_view line) {
      lines.emplace_back(line);
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

TEST(LineSplitterTest, GivesTheSameLinesHoweverTheStreamIsCut) {
  // Two-, three- and four-byte characters, empty lines as signs of life, both kinds of line ends.
  const std::string text = "{\"a\":\"é€😀\"}\n\n\n{\"b\":1}\r\n\r\nlast\n";
  for (size_t chunk = 1; chunk <= text.size(); ++chunk) {
    LineSplitter splitter(100);
    std::vector<std::string> lines;
    ASSERT_TRUE(PushAll(splitter, text, chunk, lines).ok());
    EXPECT_THAT(lines, ElementsAre("{\"a\":\"é€😀\"}", "{\"b\":1}", "last")) << "in chunks of " << chunk;
    EXPECT_EQ(splitter.pending_bytes(), 0u);
  }
}

// Were each chunk to cost as much as the line has so far, this would take hours, which no test is given.
TEST(LineSplitterTest, ALongLineThatComesByteByByteCostsNoMoreThanItsBytes) {
  constexpr size_t kLong = size_t{16} << 20;
  LineSplitter splitter(kLong);
  size_t got = 0;
  const auto take = [&](absl::string_view line) {
    got = line.size();
    return absl::OkStatus();
  };
  for (size_t i = 0; i < kLong; ++i) ASSERT_TRUE(splitter.Push("x", take).ok());
  EXPECT_EQ(got, 0u);
  ASSERT_TRUE(splitter.Push("\n", take).ok());
  EXPECT_EQ(got, kLong);
}

TEST(LineSplitterTest, DeliversALineAsSoonAsItEnds) {
  LineSplitter splitter(100);
  std::vector<std::string> lines;
  ASSERT_TRUE(PushAll(splitter, "one\ntw", 6, lines).ok());
  EXPECT_THAT(lines, ElementsAre("one"));  // though the chunk does not end with a line
  EXPECT_EQ(splitter.pending_bytes(), 2u);
}

TEST(LineSplitterTest, EndlessLinesAreCutOff) {
  LineSplitter splitter(8);
  std::vector<std::string> lines;
  EXPECT_TRUE(PushAll(splitter, "12345678\n12345678\n", 3, lines).ok());
  EXPECT_EQ(PushAll(splitter, "123456789", 1, lines).code(), absl::StatusCode::kResourceExhausted);
  LineSplitter in_one_chunk(8);
  EXPECT_EQ(PushAll(in_one_chunk, "123456789\n", 10, lines).code(), absl::StatusCode::kResourceExhausted);
}

TEST(LineSplitterTest, AnErrorOfTheReaderEndsIt) {
  LineSplitter splitter(100);
  int lines = 0;
  const absl::Status status =
      splitter.Push("a\nb\nc\n", [&](absl::string_view) { return ++lines == 2 ? absl::DataLossError("no more") : absl::OkStatus(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(lines, 2);
}

}  // namespace
}  // namespace fusionllm::kube
