// Topology and profile files that no honest program writes: endless, truncated, binary, or small and meant to become huge. Each ends
// `fusionctl plan` with exit code 2 and a sentence that names the file, within 1 GB of address space and seconds of CPU time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "absl/strings/str_cat.h"
#include "cli/testing/fusionctl.h"

namespace fusionllm::cli {
namespace {

using ::testing::HasSubstr;

// Sanitizers reserve more address space than any limit allows.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr char kLimits[] = "ulimit -t 60;";
#else
constexpr char kLimits[] = "ulimit -v 1000000; ulimit -t 5;";
#endif

constexpr char kMlpJob[] =
    "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
    "  model: {family: mlp, config: {layers: [192, 64, 8], activation: relu}}\n"
    "  data: {kind: shapes, shapes: {samples: 10, imageSize: 8, numClasses: 8}}\n"
    "  training: {steps: 2, globalBatchSize: 4, microBatchSize: 2}\n";

constexpr char kHead[] = "apiVersion: fusionllm.io/v1alpha1\nkind: Topology\nmetadata: {name: t}\nspec:\n";

std::string Repeated(const std::string& text, size_t times) {
  std::string all;
  all.reserve(text.size() * times);
  for (size_t i = 0; i < times; ++i) all += text;
  return all;
}

std::string Numbered(const std::string& before, size_t count, const std::string& after) {
  std::string all;
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&all, before, i, after);
  return all;
}

std::string OneSite(const std::string& devices) { return absl::StrCat(kHead, "  sites:\n  - {name: s, devices: [", devices, "]}\n"); }

// Ten levels of ten aliases each: a kilobyte that stands for ten thousand million values.
std::string AliasBomb() {
  std::string yaml = absl::StrCat(kHead, "  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
  for (int level = 1; level <= 10; ++level) {
    const std::string below = absl::StrCat("*a", level - 1);
    absl::StrAppend(&yaml, "  a", level, ": &a", level, " [", below, Repeated(absl::StrCat(", ", below), 9), "]\n");
  }
  return yaml;
}

std::string Device(const std::string& name, const std::string& field = "", const std::string& value = "") {
  std::string text =
      absl::StrCat(R"({"name": ")", name,
                   R"(", "site": "s", "backend": "cpu", "threads": 1, "memory_bytes": 1073741824, "compute_scale": 1, "ops": {}, )"
                   R"("rates": {"matmul": {"overhead_seconds": 1e-6, "seconds_per_flop": 1e-11, "seconds_per_byte": 1e-10, )"
                   R"("relative_error": 0.1, "samples": 9}}, "update_seconds_per_element": 1e-9, "codecs": {}})");
  if (field.empty()) return text;
  const std::string key = absl::StrCat("\"", field, "\": ");
  const size_t at = text.find(key) + key.size();
  return text.replace(at, text.find_first_of(",}", at) - at, value);
}

std::string Profiles(const std::string& devices) { return absl::StrCat(R"({"devices": [)", devices, R"(], "links": []})"); }

struct BadFile {
  std::string name;
  std::string file;  // topology.yaml or profiles.json,
  std::function<std::string()> text;
  std::vector<std::string> says;
  int code = 2;
};

void PrintTo(const BadFile& c, std::ostream* out) { *out << c.name; }

std::vector<BadFile> Topologies() {
  const std::string file = "topology.yaml";
  return {
      {"Empty", file, [] { return ""; }, {"topology.yaml:1: the document is empty"}},
      {"Truncated", file, [] { return OneSite("{name: a}").substr(0, 110); }, {"topology.yaml:6", "not YAML"}},
      {"TruncatedInItsHead", file, [] { return std::string(kHead).substr(0, 40); }, {"topology.yaml:2: kind: must be Topology"}},
      {"Binary",
       file,
       [] {
         return std::string(
             "\x7f"
             "ELF\x02\x01\x01\0\0\0\0",
             11);
       },
       {"topology.yaml:1: control character 127 at byte 0"}},
      {"NoUtf8", file, [] { return OneSite("{name: \xff\xfe}"); }, {"topology.yaml:6: not UTF-8"}},
      {"Endless",
       file,
       [] { return OneSite(Numbered("{name: device-", 300'000, "},")); },
       {"topology.yaml:1", "more than the limit of 4194304"}},
      {"DevicesBeyondTheLimit", file, [] { return OneSite(Numbered("{name: d", 20'000, "},")); }, {"topology.yaml:6", "10000"}},
      {"SitesBeyondTheLimit",
       file,
       [] { return absl::StrCat(kHead, "  sites:\n", Numbered("  - {name: s", 2'000, ", devices: []}\n")); },
       {"topology.yaml:5: spec.sites: ", "1000"}},
      {"ValuesBeyondTheLimit", file, [] { return OneSite(Repeated("[],", 450'000)); }, {"topology.yaml:6", "more than 400000 values"}},
      {"AliasBomb", file, AliasBomb, {"topology.yaml:", "more than 400000 values (aliases are counted expanded)"}},
      {"AliasOfItself", file, [] { return OneSite("&a {name: *a}"); }, {"topology.yaml:6: an alias must not stand inside"}},
      {"DeepNesting",
       file,
       [] { return kHead + ("  sites: " + Repeated("[", 100'000)); },
       {"topology.yaml:5: nested more than 64 levels deep"}},
      {"AThousandMillionThreads",
       file,
       [] { return OneSite("{name: a, threads: 1000000000}"); },
       {"topology.yaml:6", ".threads: must be at most 1024"}},
      {"ThreadsBeyondIntegers", file, [] { return OneSite("{name: a, threads: 1e309}"); }, {"topology.yaml:6", ".threads"}},
      {"SpeedBeyondNumbers", file, [] { return OneSite("{name: a, computeScale: 1e309}"); }, {"topology.yaml:6", ".computeScale"}},
      {"SpeedThatIsNoNumber", file, [] { return OneSite("{name: a, computeScale: .nan}"); }, {"topology.yaml:6", ".computeScale"}},
      {"MemoryBeyondNumbers", file, [] { return OneSite("{name: a, memory: 1e309Gi}"); }, {"topology.yaml:6", ".memory"}},
      {"MemoryBeyondIntegers", file, [] { return OneSite("{name: a, memory: 99999999999999Ti}"); }, {"topology.yaml:6", ".memory"}},
      {"NoMemory",
       file,
       [] { return OneSite("{name: a, memory: 0Gi}"); },
       {"InsufficientMemory", "before its first op, and a, which has the most, has 0 B"},
       3},
      {"NegativeMemory", file, [] { return OneSite("{name: a, memory: -1Gi}"); }, {"topology.yaml:6", ".memory"}},
      {"CountOfDevices", file, [] { return OneSite("{name: a, count: 1000000000}"); }, {"topology.yaml:6", ".count: unknown"}},
      {"SitesOfOneName",
       file,
       [] { return absl::StrCat(kHead, "  sites:\n  - {name: s, devices: [{name: a}]}\n  - {name: s, devices: [{name: b}]}\n"); },
       {"topology.yaml:7: spec.sites[1].name: the name s is given twice"}},
      {"DeviceWithTheNameOfASite", file, [] { return OneSite("{name: s}"); }, {"topology.yaml:6", "the name s is given twice"}},
      {"KeyGivenTwice", file, [] { return OneSite("{name: a, name: b}"); }, {"topology.yaml:6", "duplicate key"}},
      {"AnotherKind", file, [] { return kMlpJob; }, {"topology.yaml:2: kind"}},
  };
}

std::vector<BadFile> ProfileFiles() {
  const std::string file = "profiles.json";
  const auto with = [file](const std::string& name, const std::string& field, const std::string& value) {
    return BadFile{
        name, file, [field, value] { return Profiles(Device("a", field, value)); }, {absl::StrCat("profiles.devices[0].", field)}};
  };
  return {
      {"Empty", file, [] { return ""; }, {"profiles.json: profiles: byte 1: not JSON"}},
      {"Truncated", file, [] { return Profiles(Device("a")).substr(0, 200); }, {"profiles.json: profiles: byte 201: not JSON"}},
      {"Binary", file, [] { return std::string("\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16); }, {"profiles.json: profiles: byte 1: not JSON"}},
      {"AList", file, [] { return "[]"; }, {"profiles.json: profiles: must be an object"}},
      {"Endless", file, [] { return Repeated(" ", size_t{70} << 20); }, {"profiles.json", "67108864"}},
      {"ManyNumbers",
       file,
       [] { return Profiles(Repeated("0,", 30'000'000)); },
       {"profiles.json: profiles: byte", "more than 3000000 values"}},
      {"ManyObjects",
       file,
       [] { return Profiles(Repeated("{},", 20'000'000)); },
       {"profiles.json: profiles: byte", "more than 3000000 values"}},
      {"ObjectsBelowThatLimit",
       file,
       [] { return Profiles(Repeated("{},", 1'400'000) + "{}"); },
       {"profiles.devices: 1400001 entries, the limit is 10000"}},
      {"DeepNesting", file, [] { return Repeated("[", 10'000'000); }, {"profiles.json: profiles: byte 16: nested deeper than 16"}},
      {"OneLongName", file, [] { return Profiles(Device(Repeated("a", size_t{1} << 20))); }, {"profiles.devices[0].name"}},
      {"DevicesBeyondTheLimit",
       file,
       [] { return Profiles(Repeated("{},", 20'000) + "{}"); },
       {"profiles.devices: 20001 entries, the limit is 10000"}},
      {"DevicesOfOneName", file, [] { return Profiles(Device("a") + "," + Device("a")); }, {"profiles.devices[1].name: 'a' stands twice"}},
      {"NoDevices", file, [] { return Profiles(""); }, {"NoExecutors"}, 3},
      {"AnotherVersion", file, [] { return R"({"version": 9, "devices": [], "links": []})"; }, {"profiles.version: 9 is newer"}},
      with("AThousandMillionThreads", "threads", "1000000000"),
      with("NoMemory", "memory_bytes", "0"),
      with("NegativeMemory", "memory_bytes", "-1"),
      with("MemoryBeyondIntegers", "memory_bytes", "1e30"),
      with("NoSpeed", "compute_scale", "0"),
      with("RateBelowZero", "update_seconds_per_element", "-1"),
      {"NumberBeyondNumbers",
       file,
       [] { return Profiles(Device("a", "update_seconds_per_element", "1e309")); },
       {"profiles.json: profiles:"}},
      {"NumberThatIsNone",
       file,
       [] { return Profiles(Device("a", "update_seconds_per_element", "NaN")); },
       {"profiles.json: profiles: byte", "not JSON"}},
  };
}

class BadFiles : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadFiles, AreRefusedSoonAndSmall) {
  const BadFile& c = GetParam();
  Fusionctl program;
  program.Write("job.yaml", kMlpJob);
  program.Write("profiles.json", Profiles(Device("m")));
  program.Write("topology.yaml", OneSite("{name: a}"));
  program.Write(c.file, c.text());
  const std::string topology = c.file == "topology.yaml" ? "--topology topology.yaml " : "";
  const Outcome outcome = program.Run("plan job.yaml --profiles profiles.json " + topology, kLimits);
  EXPECT_EQ(outcome.code, c.code) << outcome.err.substr(0, 2000);
  for (const std::string& words : c.says) EXPECT_THAT(outcome.err.substr(0, 10'000), HasSubstr(words));
  EXPECT_EQ(outcome.out, "") << "no plan";
}

const auto kNameOf = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Topology, BadFiles, ::testing::ValuesIn(Topologies()), kNameOf);
INSTANTIATE_TEST_SUITE_P(Profiles, BadFiles, ::testing::ValuesIn(ProfileFiles()), kNameOf);

// Files that have no end, or are none.
TEST(BadFilesToo, DevicesAndFoldersAreNoFiles) {
  Fusionctl program;
  program.Write("job.yaml", kMlpJob);
  for (const char* path : {"/dev/zero", "/", "missing"}) {
    const Outcome profiles = program.Run(absl::StrCat("plan job.yaml --profiles ", path), kLimits);
    EXPECT_EQ(profiles.code, 2) << path << ": " << profiles.err;
    EXPECT_THAT(profiles.err, HasSubstr(path));
    const Outcome topology = program.Run(absl::StrCat("plan job.yaml --topology ", path), kLimits);
    EXPECT_EQ(topology.code, 2) << path << ": " << topology.err;
    EXPECT_THAT(topology.err, HasSubstr(path));
  }
}

// Or the cases would prove nothing: under the same limits a plan on the whole files is made.
TEST(BadFilesToo, TheLimitsLeaveRoomForAPlan) {
  Fusionctl program;
  program.Write("job.yaml", kMlpJob);
  program.Write("profiles.json", Profiles(Device("m")));
  program.Write("topology.yaml", OneSite("{name: a}"));
  for (const char* topology : {"", "--topology topology.yaml"}) {
    const Outcome outcome = program.Run(absl::StrCat("plan job.yaml --profiles profiles.json ", topology), kLimits);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
  }
}

}  // namespace
}  // namespace fusionllm::cli
