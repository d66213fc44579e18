// Whatever happens to a run in whatever order, it keeps its promises: random histories of executors, reports, errors and timers.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "lib/base/philox.h"
#include "lib/broker/run_state.h"
#include "lib/broker/testing/run_state_harness.h"

namespace fusionllm::broker {
namespace {

using testing::Of;
using testing::Options;
using testing::RunStateHarness;

// With no news at all any more, the timers alone end the run: it waits for nothing for ever.
bool EndsInSilence(RunState state, std::optional<StartTimer> timer) {
  for (int timeouts = 0; timeouts < 50; ++timeouts) {
    if (state.phase() == Phase::kDone || state.phase() == Phase::kFailed) return true;
    if (!timer.has_value()) return false;
    const std::vector<StartTimer> next = Of<StartTimer>(state.On(TimerFired{.id = timer->id}));
    timer.reset();
    if (!next.empty()) timer = next.back();
  }
  return false;
}

// A run to which anything happens in any order, whose executors and scheduler answer late, or never. Begins at step 0 or in the middle.
class History {
 public:
  explicit History(uint64_t seed) : rng_(seed, "history"), run_(OptionsOf(seed), {"a0", "b0", "c0"}) {
    run_.ignores = [this](const Action& action) {
      const bool late = !std::holds_alternative<StartTimer>(action) && Below(8) == 0;
      if (late) late_.push_back(action);
      return late;
    };
    if (Below(3) == 0) {
      const int64_t step = static_cast<int64_t>(Below(30));
      std::vector<ShardWritten> shards;
      if (Below(2) == 0) shards.push_back({.epoch = 3, .step = step + 1, .stage = 1});
      std::map<std::string, int64_t> ended;
      if (Below(4) == 0) ended["a0"] = step;
      run_.state.Adopt(3, {.document = "{}", .devices = {"a0", "b0", "c0"}}, {}, {}, step, shards, ended);
    }
    run_.Feed(Started{});
    if (run_.state.epoch() > 0) Check();  // a new run waits for its first executor as long as it takes
    for (const char* name : {"a0", "b0", "c0", "s0"}) Join(name);
  }

  bool over() const { return run_.state.phase() == Phase::kDone || run_.state.phase() == Phase::kFailed; }
  RunStateHarness& run() { return run_; }

  void Continue() {
    const std::string name = std::vector<std::string>{"a0", "b0", "c0", "s0"}[Below(4)];
    switch (Below(14)) {
      case 0:
        run_.Feed(ExecutorLeft{.name = name, .incarnation = incarnation_[name], .why = "killed"});
        break;
      case 1:
        Join(name);
        break;
      case 2:
        if (!run_.state.plan().devices.empty()) run_.SaveShards(run_.state.last_step());
        break;
      case 3:
        run_.Feed(StageEnded{.epoch = run_.state.epoch(),
                             .name = name,
                             .last_step = run_.state.last_step(),
                             .status = absl::UnavailableError("link"),
                             .lost_peer = "x"});
        break;
      case 4:
        Trouble(name);
        break;
      case 5:
        if (run_.timer.has_value()) run_.Feed(TimerFired{.id = run_.timer->id});
        break;
      case 6:
      case 7:
      case 8:
        AnswerLate();
        break;
      default:
        run_.Step(run_.state.last_step() + 1);
        break;
    }
    Check();
  }

 private:
  // One in four with data that two executors have, who are waited for or not.
  static RunOptions OptionsOf(uint64_t seed) {
    RunOptions options = Options({"a0", "b0", "c0", "s0"});
    if (seed % 4 == 0) options.data_devices = {"a0", "s0"};
    if (seed % 8 == 0) options.data_timeout_s = 300;
    return options;
  }

  uint64_t Below(uint64_t bound) { return rng_.Below(draw_++, bound); }

  void Join(const std::string& name) {
    Executor executor{.name = name, .incarnation = ++incarnation_[name], .site = name.substr(0, 1), .spare = name[0] == 's'};
    executor.memory_bytes = 100;
    run_.Feed(ExecutorJoined{.executor = executor, .epoch = Below(2) == 0 ? run_.state.epoch() : 0});
    Check();
  }

  void AnswerLate() {
    if (late_.empty()) return;
    const auto which = late_.begin() + static_cast<std::ptrdiff_t>(Below(late_.size()));
    const Action action = *which;
    late_.erase(which);
    run_.Answer(action);
    std::vector<Event> events;
    std::swap(events, run_.answers);
    for (const Event& event : events) run_.Feed(event);
  }

  // Errors, of which some end the run, and a user who has had enough.
  void Trouble(const std::string& name) {
    const absl::Status error = absl::InternalError("broken");
    switch (Below(8)) {
      case 0:
        run_.Feed(StopRequested{});
        break;
      case 1:
      case 2:
        run_.Feed(Calibrated{.name = name, .status = error});
        break;
      case 3:
        run_.Feed(StageReady{.epoch = run_.state.epoch(), .name = name, .status = Below(4) == 0 ? error : absl::UnavailableError("link")});
        break;
      case 4:
        run_.Feed(StageEnded{.epoch = run_.state.epoch(), .name = name, .status = Below(4) == 0 ? error : absl::CancelledError("told to")});
        break;
      case 5:
        run_.Feed(CheckpointCommitted{.step = run_.state.last_step(), .status = error});
        break;
      case 6:
        if (!run_.state.plan().devices.empty()) run_.EndAll(run_.state.last_step());
        break;
      default:
        if (!run_.state.plan().devices.empty()) run_.Feed(run_.Shard(run_.state.last_step() + 1, 0, error));
        break;
    }
  }

  void Check() {
    EXPECT_TRUE(EndsInSilence(run_.state, run_.timer)) << "nobody is awaited while " << Name(run_.state.phase());
    if (run_.state.phase() != Phase::kRunning) return;
    for (const std::string& device : run_.state.plan().devices) EXPECT_TRUE(run_.state.executors().contains(device)) << device;
  }

  const base::CounterRng rng_;
  uint64_t draw_ = 0;
  RunStateHarness run_;
  std::map<std::string, uint64_t> incarnation_;
  std::vector<Action> late_;  // orders whose answers are yet to come
};

// One terminal action at most, steps of one epoch ascend, a plan uses only executors of the run, and the run is always waiting for
// something or over.
TEST(RunStateHistoryTest, SurvivesRandomHistories) {
  std::map<Phase, int> ends;
  for (uint64_t seed = 0; seed < 1000 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    History history(seed);
    for (int i = 0; i < 100 && !history.over(); ++i) history.Continue();
    const RunStateHarness& run = history.run();
    ++ends[run.state.phase()];
    EXPECT_LE(Of<Finish>(run.all).size(), 1u);
    int64_t last = 0;
    uint32_t epoch = 0;
    for (const PublishStep& publish : Of<PublishStep>(run.all)) {
      EXPECT_TRUE(publish.epoch != epoch || publish.record.step > last);
      epoch = publish.epoch;
      last = publish.record.step;
    }
  }
  EXPECT_GT(ends[Phase::kDone], 50);
  EXPECT_GT(ends[Phase::kFailed], 50);
  EXPECT_GT(ends[Phase::kRunning], 50);
}

}  // namespace
}  // namespace fusionllm::broker
