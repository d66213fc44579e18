// The stream of a watch as a hostile server may send it: cut anywhere it gives the same lines, and events are read or refused.
#include <algorithm>

#include "lib/base/testing/fuzz.h"
#include "lib/kube/api/resource_version.h"
#include "lib/kube/watch/line_splitter.h"
#include "lib/kube/watch/object.h"
#include "lib/kube/watch/watch_event.h"

namespace fusionllm::kube {
namespace {

std::vector<std::string> Seeds() {
  return {
      "{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"5\"},\"status\":{\"phase\":"
      "\"Running\"}}}\n\n"
      "{\"object\":{\"kind\":\"Pod\",\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"6\"}},\"type\":\"DELETED\"}\r\n",
      "{\"type\":\"BOOKMARK\",\"object\":{\"kind\":\"Pod\",\"metadata\":{\"resourceVersion\":\"9\"}}}\n",
      "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"code\":410}}\n"};
}

std::vector<std::string> Words() {
  return {"\n", "\r\n", "{\"type\":", "\"object\":{", "BOOKMARK", "\"resourceVersion\":\"0\"", "\\ud83d", "null"};
}

std::vector<std::string> Lines(absl::string_view input, size_t chunk) {
  std::vector<std::string> lines;
  LineSplitter splitter(4096);
  for (size_t at = 0; at < input.size(); at += chunk) {
    const absl::Status status = splitter.Push(input.substr(at, chunk), [&](absl::string_view line) {
      FUZZ_CHECK(!line.empty() && line.size() <= 4096 && line.find('\n') == absl::string_view::npos);
      lines.emplace_back(line);
      return absl::OkStatus();
    });
    if (!status.ok()) break;
    FUZZ_CHECK(splitter.pending_bytes() <= 4096);
  }
  return lines;
}

bool Accepts(absl::string_view input) {
  const std::vector<std::string> lines = Lines(input, std::max<size_t>(input.size(), 1));
  FUZZ_CHECK(Lines(input, 1) == lines);
  bool all = !lines.empty();
  for (const std::string& line : lines) {
    const auto event = ParseWatchEvent(line);
    all = all && event.ok();
    if (!event.ok()) continue;
    FUZZ_CHECK(event->object.front() == '{' && event->type_name.size() <= 64);
    const auto bookmark = ParseBookmark(event->object);
    if (bookmark.ok()) FUZZ_CHECK(IsResourceVersion(*bookmark));
    KindOf(event->object);
    DecodePod(event->object).status().IgnoreError();
  }
  return all;
}

}  // namespace
}  // namespace fusionllm::kube

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {kube::Seeds, kube::Words, kube::Accepts}; }
