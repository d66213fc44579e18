// Job and topology files as users write them, each followed by values of --set, if any, after a byte 0x1d each.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_split.h"
#include "lib/base/testing/fuzz.h"
#include "lib/job/parse.h"

namespace fusionllm::job {
namespace {

std::vector<std::string> Seeds() {
  const char* source = std::getenv("FUSIONLLM_SOURCE_DIR");
  std::vector<std::string> texts;
  for (const char* folder : {"examples/jobs", "examples/topologies"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(source == nullptr ? "." : source) / folder)) {
      std::ifstream file(entry.path(), std::ios::binary);
      texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
    }
  }
  std::sort(texts.begin(), texts.end());
  const size_t written = texts.size();
  for (size_t i = 0; i < written; ++i) {
    if (const auto job = ParseFusionJob(texts[i], "seed.yaml"); job.ok()) {
      texts.push_back(ToYaml(*job));
      texts.push_back(texts[i] +
                      "\x1dspec.training.steps=5\x1dspec.strategy.pins=[{ops: \"a*\", device: b}]\x1dspec.strategy.pins[0].device=c");
    } else if (const auto topology = ParseTopology(texts[i], "seed.yaml"); topology.ok()) {
      texts.push_back(ToYaml(*topology));
    }
  }
  return texts;
}

std::vector<std::string> Words() {
  return {"{",   "}",    "[",    "]",    ": ", ", ",        "- ",    "\n",    "\n  ", "? ",   "&a ", "*a",           "!2",
          "!!",  "|",    ">-",   "\"",   "'",  "#",         "%YAML", "---",   "...",  "<<: ", "\t",  "\xEF\xBB\xBF", "~",
          "1e9", ".nan", "auto", "null", "\r", "\x1dspec.", "40ms",  "1Gbit", "2Gi",  "="};
}

template <class T>
bool ReadsBack(const absl::StatusOr<T>& value, absl::StatusOr<T> (*parse)(absl::string_view)) {
  if (!value.ok()) {
    FUZZ_CHECK(value.status().code() == absl::StatusCode::kInvalidArgument && !value.status().message().empty());
    return false;
  }
  const absl::StatusOr<T> again = parse(ToYaml(*value));
  FUZZ_CHECK(again.ok());
  FUZZ_CHECK(*again == *value);
  return true;
}

bool Accepts(absl::string_view input) {
  const std::vector<std::string> parts = absl::StrSplit(input, '\x1d');
  const std::span<const std::string> overrides = std::span(parts).subspan(1);
  const bool topology =
      ReadsBack<Topology>(ParseTopology(parts[0], "fuzz.yaml"), [](absl::string_view yaml) { return ParseTopology(yaml, "again"); });
  const bool job = ReadsBack<FusionJob>(ParseFusionJob(parts[0], "fuzz.yaml", overrides),
                                        [](absl::string_view yaml) { return ParseFusionJob(yaml, "again"); });
  FUZZ_CHECK(!job || !topology);
  return job || topology;
}

}  // namespace
}  // namespace fusionllm::job

fusionllm::base::FuzzTarget fusionllm::base::TheFuzzTarget() { return {job::Seeds, job::Words, job::Accepts}; }
