// What the processes of a real run export, against what the run itself told.
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/daemon/testing/http_get.h"
#include "tests/integration/run_fixture.h"

namespace fusionllm::integration {
namespace {

using daemon::HttpGet;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Le;

constexpr int kTokensPerStep = 4 * 8;  // batch and sequence of the fixture's job

// Value by series, in the text format. What the process tells of itself, its processor time say, is no figure of the run.
class Scrape {
 public:
  explicit Scrape(const std::string& text) {
    for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
      const size_t space = line.rfind(' ');
      if (line[0] == '#' || space == absl::string_view::npos || absl::StartsWith(line, "process_")) continue;
      series_[std::string(line.substr(0, space))] = std::stod(std::string(line.substr(space + 1)));
    }
  }
  double Of(const std::string& series) const {
    const auto found = series_.find("fusionllm_" + series);
    EXPECT_NE(found, series_.end()) << series << " is not exported";
    return found == series_.end() ? -1 : found->second;
  }
  // All series of a family.
  std::map<std::string, double> Family(const std::string& name) const {
    std::map<std::string, double> all;
    for (const auto& [series, value] : series_) {
      if (series == "fusionllm_" + name || absl::StartsWith(series, "fusionllm_" + name + "{")) all.emplace(series, value);
    }
    return all;
  }
  std::vector<double> Values(const std::string& name) const {
    std::vector<double> values;
    for (const auto& [series, value] : Family(name)) values.push_back(value);
    return values;
  }
  const std::map<std::string, double>& series() const { return series_; }

 private:
  std::map<std::string, double> series_;
};

class MetricsTest : public RunTest {
 protected:
  // Where a process of the run says in its log that it is watched.
  std::string AddressOf(const std::string& process) {
    std::ifstream log(Path("out/logs/" + process + ".log"));
    std::string address;
    for (std::string line; std::getline(log, line);) {
      const size_t at = line.find("metrics on http://");
      if (at != std::string::npos) address = line.substr(at + 18, line.rfind('/') - at - 18);
    }
    EXPECT_FALSE(address.empty()) << process;
    return address;
  }
  Scrape Of(const std::string& process) { return Scrape(HttpGet(AddressOf(process), "/metrics").body); }
  // Of the broker and of an executor at one moment: the broker tells twice the same, ages aside, and of the executor what that tells itself
  // in between. Comes to an end when the run stands still.
  std::pair<Scrape, Scrape> AtRest(const std::string& executor) {
    while (true) {
      const Scrape before = Of("broker"), between = Of(executor), after = Of("broker");
      bool same = before.series().size() == after.series().size();
      for (const auto& [series, value] : before.series()) {
        const auto other = after.series().find(series);
        same = same && other != after.series().end() && (absl::StrContains(series, "_age_seconds") || other->second == value);
      }
      for (const auto& [series, value] : between.Family("link_bytes_total")) {
        const auto other = after.series().find(series);
        same = same && other != after.series().end() && other->second == value;
      }
      if (same) return {after, between};
    }
  }

  // The last figures of a run that loses an executor without a spare: what is left is planned anew.
  Scrape Replanned() {
    WriteTopology(3, 0);
    const auto run = Start({"spec.training.steps=20"}, {}, "replanned");
    EXPECT_TRUE(run->WaitForStep(4, kStartLimit)) << run->Stderr();
    KillProcess(PidOfStage(*run, 1));
    ExpectEnd(*run, 0);
    Scrape end(base::ReadWholeFile(Path("replanned/metrics.prom")));
    EXPECT_EQ(end.Of("replans_total{reason=\"executor_lost\"}"), 1);
    EXPECT_EQ(end.Of("nodes{state=\"active\"}"), 2);
    EXPECT_EQ(end.Family("stage_busy_ratio").size(), 2) << "a series of a stage that is no more";
    EXPECT_EQ(end.Family("compression_ratio").size(), 2) << "one link, both ways";
    return end;
  }
};

json StepLine(const FusionctlChild& run, int64_t step) {
  json last;
  for (const json& line : run.lines()) {
    if (line.value("type", "") == "step" && line["step"] == step) last = line;
  }
  return last;
}

size_t Count(const FusionctlChild& run, const std::string& type, const std::string& reason = "") {
  return std::count_if(run.lines().begin(), run.lines().end(), [&](const json& line) {
    return line.value("type", "") == type && (reason.empty() || line.value("reason", "") == reason);
  });
}

// The names in docs/reference/metrics.md that `service` exports.
std::set<std::string> Documented(const std::string& service) {
  const char* root = std::getenv("FUSIONLLM_SOURCE_DIR");
  std::ifstream in(absl::StrCat(root == nullptr ? "." : root, "/docs/reference/metrics.md"));
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> cells = absl::StrSplit(line, '|');
    if (cells.size() > 5 && absl::StartsWith(cells[1], " `fusionllm_") && absl::StrContains(cells[4], service)) {
      names.insert(cells[1].substr(12, cells[1].size() - 14));
    }
  }
  EXPECT_FALSE(names.empty()) << service;
  return names;
}

void ExpectFamilies(const std::string& service, std::vector<Scrape> scrapes) {
  for (const std::string& name : Documented(service)) {
    if (name == "link_bandwidth_bytes_per_second") continue;  // the messages of this job may be too small to tell
    if (absl::StartsWith(name, "gpu_")) continue;             // only where there is a card: gpu_metrics_test
    const bool seen = std::any_of(scrapes.begin(), scrapes.end(), [&](const Scrape& scrape) {
      return !scrape.Family(name).empty() || !scrape.Family(name + "_count").empty();
    });
    EXPECT_TRUE(seen) << name << " is documented and was never exported";
  }
}

// A run that loses an executor, for which a spare steps in. It is stopped in the middle, so that scrapes can be compared with what it
// printed.
TEST_F(MetricsTest, TheyTellWhatTheRunTells) {
  WriteTopology(3, 1);
  const auto run = Start({"spec.checkpoint={path: checkpoints, everySteps: 10}", "spec.compression={policy: uniform, codec: int8}"});
  ASSERT_TRUE(run->WaitForStep(4, kStartLimit)) << run->Stderr();
  const pid_t last_stage = PidOfStage(*run, 2);
  kill(last_stage, SIGSTOP);

  std::vector<std::string> devices = {"", "", ""};  // by stage
  for (const json& line : run->lines()) {
    if (line.value("reason", "") == "ExecutorJoined" && line["stage"].is_number()) devices[line["stage"]] = line["device"];
  }
  const auto [live, first] = AtRest(devices[0]);
  const auto done = static_cast<int64_t>(live.Of("tokens_total")) / kTokensPerStep;
  ASSERT_TRUE(StepLine(*run, done).is_object() || run->WaitForStep(done, kStartLimit)) << done;
  const json step = StepLine(*run, done);
  EXPECT_DOUBLE_EQ(live.Of("loss"), step["loss"].get<double>());
  EXPECT_NEAR(live.Of("perplexity"), std::exp(step["loss"].get<double>()), 1e-6 * live.Of("perplexity"));
  EXPECT_DOUBLE_EQ(live.Of("grad_norm"), step["grad_norm"].get<double>());
  EXPECT_DOUBLE_EQ(live.Of("learning_rate"), step["learning_rate"].get<double>());
  EXPECT_DOUBLE_EQ(live.Of("tokens_per_second"), step["tokens_per_second"].get<double>());
  EXPECT_DOUBLE_EQ(live.Of("samples_per_second") * 8, live.Of("tokens_per_second"));
  EXPECT_DOUBLE_EQ(live.Of("progress_ratio"), static_cast<double>(done) / 60);
  EXPECT_GT(live.Of("eta_seconds"), 0);
  EXPECT_EQ(live.Of("step_seconds_count"), done);
  EXPECT_EQ(live.Of("nodes{state=\"active\"}"), 3);
  EXPECT_EQ(live.Of("nodes{state=\"spare\"}"), 1);
  EXPECT_EQ(live.Of("nodes{state=\"lost\"}"), 0);
  EXPECT_EQ(live.Family("heartbeat_age_seconds").size(), 4);
  EXPECT_THAT(live.Values("stage_busy_ratio"), AllOf(::testing::SizeIs(3), Each(Gt(0)), Each(Le(1))));
  EXPECT_GT(live.Of("bubble_ratio"), 0);
  EXPECT_LT(live.Of("bubble_ratio"), 1);
  EXPECT_DOUBLE_EQ(live.Of("plan_predicted_step_seconds"), run->lines()[0]["predicted_step_seconds"].get<double>());
  EXPECT_GT(live.Of("plan_drift_ratio"), 0);
  for (const double ratio : live.Values("compression_ratio")) EXPECT_THAT(ratio, AllOf(Gt(2), Le(4))) << "int8 with its scales";
  EXPECT_THAT(live.Values("compression_error"), Each(AllOf(Gt(0), Le(0.1))));

  for (const std::string& process : {std::string("broker"), std::string("scheduler"), devices[0], devices[1], std::string("spare-0")}) {
    EXPECT_EQ(HttpGet(AddressOf(process), "/healthz").code, 200) << process;
    EXPECT_EQ(HttpGet(AddressOf(process), "/readyz").code, 200) << process;
  }
  const Scrape scheduler = Of("scheduler");
  EXPECT_EQ(first.Of("stage_compute_seconds{dir=\"forward\",stage=\"0\"}"), live.Of("stage_compute_seconds{dir=\"forward\",stage=\"0\"}"));
  EXPECT_LE(first.Of("device_memory_bytes{kind=\"resident\"}"), first.Of("device_memory_bytes{kind=\"peak\"}"));
  EXPECT_EQ(first.Of("device_memory_bytes{kind=\"limit\"}"), 1 << 30);
  EXPECT_GT(first.Of("device_memory_bytes{kind=\"planned\"}"), 0);
  EXPECT_GT(first.Of("data_wait_seconds"), 0);
  EXPECT_THAT(Of(devices[1]).Family("data_wait_seconds"), IsEmpty()) << "a stage without data";
  EXPECT_EQ(scheduler.Of("plans_total{outcome=\"planned\"}"), 1);
  EXPECT_EQ(scheduler.Of("plans_in_flight"), 0);
  kill(last_stage, SIGCONT);

  ASSERT_TRUE(run->WaitForEvent("CheckpointSaved", kStartLimit)) << run->Stderr();
  KillProcess(last_stage);
  ExpectEnd(*run, 0);

  const Scrape end(base::ReadWholeFile(Path("out/metrics.prom")));
  const json summary = Summary(*run);
  EXPECT_DOUBLE_EQ(end.Of("loss"), summary["final_loss"].get<double>());
  EXPECT_EQ(end.Of("progress_ratio"), 1);
  EXPECT_EQ(end.Of("eta_seconds"), 0);
  EXPECT_EQ(end.Of("tokens_total"), 60 * kTokensPerStep);
  EXPECT_EQ(end.Of("step_seconds_count"), Count(*run, "step")) << "steps made again took their time, too";
  EXPECT_EQ(end.Of("recoveries_total"), 1);
  EXPECT_EQ(end.Of("recovery_seconds_count"), 1);
  EXPECT_EQ(end.Of("checkpoint_seconds_count"), Count(*run, "event", "CheckpointSaved"));
  EXPECT_GT(end.Of("checkpoint_bytes"), 10'000);
  EXPECT_GT(end.Of("checkpoint_seconds_sum"), 0);
  double bytes = 0;
  for (const double value : end.Values("link_bytes_total")) bytes += value;
  EXPECT_EQ(bytes, summary["wire_bytes"].get<double>());

  ExpectFamilies("broker", {live, end, Replanned()});
  ExpectFamilies("executor", {first});
  ExpectFamilies("scheduler", {scheduler});
}

TEST_F(MetricsTest, AnAddressThatIsTakenEndsTheRunWithASentence) {
  const auto run = Start({"spec.training.steps=1000000"}, {"--metrics-address", "127.0.0.1:0", "--log-level", "debug"});
  ASSERT_TRUE(run->WaitForStep(1, kStartLimit)) << run->Stderr();
  const std::string taken = AddressOf("broker");
  EXPECT_THAT(run->Stderr(), AllOf(HasSubstr("fusion-broker: metrics on http://" + taken), HasSubstr("started fusion-broker, process")));
  const auto second = Start({}, {"--metrics-address", taken}, "second");
  EXPECT_EQ(second->Wait(kRunLimit), 2);
  EXPECT_THAT(second->Stderr(), AllOf(HasSubstr("--metrics-address"), HasSubstr(taken), HasSubstr("in use")));
  run->Signal(SIGINT);
  ExpectEnd(*run, 130);
  EXPECT_THAT(base::ReadWholeFile(Path("out/logs/broker.log")), HasSubstr("debug fusion-broker: step 1: loss"));
}

TEST_F(MetricsTest, WithoutALevelTheRunSaysNothingOfItsProcesses) {
  const auto run = RunToEnd({"spec.training.steps=2"}, {"--metrics-address", "off"});
  EXPECT_THAT(run->Stderr(), ::testing::Not(HasSubstr("metrics on")));
  EXPECT_THAT(base::ReadWholeFile(Path("out/logs/broker.log")), ::testing::Not(HasSubstr("metrics on")));
  EXPECT_THAT(base::ReadWholeFile(Path("out/logs/broker.log")), HasSubstr("info fusion-broker: plan epoch 1"));
}

}  // namespace
}  // namespace fusionllm::integration
