// Several pipelines side by side: what they train is what one with all micro-batches trains, all of them have it, and they end together.
#include "lib/runtime/replica_group.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/local_communicator.h"
#include "lib/collective/testing/in_memory_network.h"
#include "lib/kernels/testing/isolated_memory.h"
#include "lib/runtime/not_finite.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

using ::testing::HasSubstr;
using testing::kSmallClasses;
using testing::kSmallMicroBatches;
using testing::LossBits;
using testing::MustRun;
using testing::PipelineOptions;
using testing::PipelineResult;
using testing::SmallOptions;

constexpr char kMemoryApart[] = "ref_apart";

const std::map<std::string, autodiff::TrainingGraph (*)()> kReplicatedNetworks = {
    {"TiedGpt2", [] { return testing::SmallGpt2(true); }},
    {"Residual", testing::SmallResidualNetwork},
    {"TiedGpt2InBf16", [] { return testing::InBf16(testing::SmallGpt2(true)); }},
};

// As many micro-batches in all as the other tests have in one pipeline.
PipelineOptions Options(const autodiff::TrainingGraph& training, int replicas, int stages, const std::string& backend) {
  PipelineOptions options = SmallOptions(training, stages, backend == kMemoryApart ? "ref" : backend);
  if (backend == kMemoryApart) options.make_backend = [] { return kernels::testing::IsolatedMemoryBackend("ref"); };
  options.config.micro_batches = options.config.in_flight = kSmallMicroBatches / replicas;
  options.config.replicas = replicas;
  return options;
}

class ReplicaTest : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  PipelineOptions Options(int replicas, int stages) const { return runtime::Options(training_, replicas, stages, std::get<1>(GetParam())); }
  const autodiff::TrainingGraph training_ = kReplicatedNetworks.at(std::get<0>(GetParam()))();
};

// Replica 0's are kept, of its own micro-batches.
bool IsRunningStatistic(const std::string& name) {
  return name.ends_with("running_mean") || name.ends_with("running_var") || name.ends_with("num_batches_tracked");
}

void ExpectReplicasAgree(const PipelineResult& result, size_t replicas) {
  ASSERT_EQ(result.of_replica.size(), replicas);
  ASSERT_FALSE(result.parameters.empty());
  for (size_t replica = 1; replica < replicas; ++replica) {
    for (const auto& [name, bytes] : result.parameters) EXPECT_EQ(result.of_replica[replica].at(name), bytes) << name << " of " << replica;
  }
}

// Relative, after three steps: the same fp32 terms in another order. 1e-7 was seen; how a CPU's vectors add may differ by more.
constexpr double kTolerance = 1e-6;

void ExpectLosses(const PipelineResult& got, const PipelineResult& want) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t i = 0; i < want.steps.size(); ++i) {
    EXPECT_NEAR(got.steps[i].loss, want.steps[i].loss, kTolerance * want.steps[i].loss) << "step " << i + 1;
    EXPECT_NEAR(got.steps[i].gradient_norm, want.steps[i].gradient_norm, kTolerance * want.steps[i].gradient_norm);
    EXPECT_EQ(got.steps[i].learning_rate, want.steps[i].learning_rate);
  }
}

TEST_P(ReplicaTest, TrainAsOneWithAllMicroBatches) {
  const PipelineResult one = MustRun(training_, Options(1, 2));
  for (const auto& [replicas, stages] : {std::pair(2, 1), std::pair(2, 2), std::pair(4, 2)}) {
    SCOPED_TRACE(absl::StrCat(replicas, " replicas of ", stages, " stages"));
    const PipelineResult several = MustRun(training_, Options(replicas, stages));
    ExpectReplicasAgree(several, static_cast<size_t>(replicas));
    ExpectLosses(several, one);
    EXPECT_GT(one.steps[0].gradient_norm, Options(1, 1).config.gradient_clip_norm) << "nothing was clipped";
    EXPECT_EQ(several.parameters.size(), one.parameters.size());
  }
}

// A faster replica may take more of them; the loss is the mean over all targets all the same.
TEST_P(ReplicaTest, UnequalSharesTrainAsOneWithAllMicroBatches) {
  const PipelineResult one = MustRun(training_, Options(1, 2));
  for (const std::vector<int>& shares :
       std::vector<std::vector<int>>{{1, kSmallMicroBatches - 1}, {kSmallMicroBatches - 1, 1}, {1, 2, 1}}) {
    SCOPED_TRACE(absl::StrCat(shares.front(), " of ", kSmallMicroBatches));
    PipelineOptions options = Options(1, 2);
    options.config.replicas = static_cast<int>(shares.size());
    options.shares = shares;
    const PipelineResult several = MustRun(training_, options);
    ExpectReplicasAgree(several, shares.size());
    ExpectLosses(several, one);
  }
}

TEST_P(ReplicaTest, RepeatWithTheSameBits) {
  const PipelineResult once = MustRun(training_, Options(2, 2)), again = MustRun(training_, Options(2, 2));
  EXPECT_EQ(LossBits(once), LossBits(again));
  EXPECT_EQ(once.parameters, again.parameters);
}

// Stages, schedule and recomputation change no bit of a replica's sums, so none of theirs either.
TEST_P(ReplicaTest, StagesDoNotChangeABit) {
  const PipelineResult whole = MustRun(training_, Options(2, 1));
  for (const int stages : {2, 4}) {
    const PipelineResult cut = MustRun(training_, Options(2, stages));
    EXPECT_EQ(LossBits(cut), LossBits(whole)) << stages << " stages";
    EXPECT_EQ(cut.parameters, whole.parameters) << stages << " stages";
  }
}

// Two terms have one sum: with a micro-batch each, two replicas are one with two, in every bit. But not where a kernel adds the rows of a
// micro-batch one by one to what there is, as an embedding's gradient does, and they are no multiples of something coarse, as in bf16.
class ReplicaBitsTest : public ReplicaTest {};
TEST_P(ReplicaBitsTest, TwoMicroBatchesHaveOneSum) {
  PipelineOptions one = Options(1, 2), two = Options(2, 2);
  one.config.micro_batches = one.config.in_flight = 2;
  two.config.micro_batches = two.config.in_flight = 1;
  const PipelineResult want = MustRun(training_, one), got = MustRun(training_, two);
  EXPECT_EQ(LossBits(got), LossBits(want));
  for (const auto& [name, bytes] : want.parameters) {
    if (IsRunningStatistic(name)) continue;
    EXPECT_EQ(got.parameters.at(name), bytes) << name;
  }
}

// Each replica by chunks, as in a process of its own: chains add in the order of ranks, as the communicator in one process does.
TEST_P(ReplicaTest, TrainOverChainWithTheSameBits) {
  for (const auto& [replicas, stages] : {std::pair(2, 1), std::pair(2, 2), std::pair(4, 2)}) {
    SCOPED_TRACE(absl::StrCat(replicas, " replicas of ", stages, " stages"));
    PipelineOptions options = Options(replicas, stages);
    const PipelineResult in_process = MustRun(training_, options);
    std::map<std::string, std::unique_ptr<collective::testing::InMemoryNetwork>> networks;  // by group
    for (int stage = 0; stage < stages; ++stage) {
      networks[absl::StrCat("stage-", stage)] = std::make_unique<collective::testing::InMemoryNetwork>(
          replicas, collective::testing::InMemoryNetwork::FaultOptions{.late = true, .seed = static_cast<uint32_t>(stage)});
    }
    options.join = [&](collective::Rendezvous&, const collective::GroupRank& group_rank, kernels::Backend& backend) {
      return collective::MakeChain(group_rank, backend.memory(), networks.at(group_rank.group)->channel(group_rank.rank),
                                   {.chunk_bytes = 1000});
    };
    const PipelineResult by_chunks = MustRun(training_, options);
    EXPECT_EQ(LossBits(by_chunks), LossBits(in_process));
    EXPECT_EQ(by_chunks.parameters, in_process.parameters);
    EXPECT_EQ(by_chunks.of_replica, in_process.of_replica);
  }
}

std::string NameOf(const ::testing::TestParamInfo<ReplicaTest::ParamType>& info) {
  return absl::StrCat(std::get<0>(info.param), "On_", std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(Networks, ReplicaTest,
                         ::testing::Combine(::testing::Values("TiedGpt2", "Residual", "TiedGpt2InBf16"),
                                            ::testing::Values("ref", "cpu", kMemoryApart)),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Networks, ReplicaBitsTest,
                         ::testing::Combine(::testing::Values("Residual", "TiedGpt2InBf16"), ::testing::Values("ref", "cpu", kMemoryApart)),
                         NameOf);

TEST(ReplicaGroupTest, RunningStatisticsAreReplicaZeros) {
  const autodiff::TrainingGraph training = testing::SmallResidualNetwork();
  const PipelineResult result = MustRun(training, Options(training, 2, 2, "ref"));
  ExpectReplicasAgree(result, 2);
  int counted = 0;
  for (const auto& [name, bytes] : result.parameters) {
    if (!name.ends_with("num_batches_tracked")) continue;
    int64_t count = 0;
    ASSERT_EQ(bytes.size(), sizeof(count)) << name;
    std::memcpy(&count, bytes.data(), sizeof(count));
    EXPECT_EQ(count, static_cast<int64_t>(result.steps.size()) * kSmallMicroBatches / 2) << name;
    ++counted;
  }
  EXPECT_GT(counted, 0);
}

// Notes which micro-batches of a step, or of an evaluation, somebody has asked for.
class Noted : public BatchSource {
 public:
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    {
      const std::lock_guard lock(mutex_);
      asked_[evaluation].insert({step, micro_batch});
      times_ += 1;
    }
    return inner_->Fill(evaluation, step, micro_batch, placeholder, out);
  }
  std::set<std::pair<int64_t, int>> asked(bool evaluation) { return asked_[evaluation]; }
  int times() const { return times_; }

 private:
  std::mutex mutex_;
  std::map<bool, std::set<std::pair<int64_t, int>>> asked_;
  int times_ = 0;
  const std::unique_ptr<BatchSource> inner_ = testing::SyntheticSource(7, kSmallClasses);
};

TEST(ReplicaGroupTest, EachMicroBatchIsReadByOneReplicaAndEvaluationsByTheFirst) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  std::map<int, std::set<std::pair<int64_t, int>>> asked[2];
  int times[2] = {};
  for (const int replicas : {1, 2}) {
    PipelineOptions options = Options(training, replicas, 2, "ref");
    options.config.evaluate_every = 2;
    options.config.evaluation_batches = 2;
    Noted source;
    const auto result = testing::RunPipeline(training, options, source);
    ASSERT_TRUE(result.ok()) << result.status();
    for (const bool evaluation : {false, true}) asked[replicas - 1][evaluation] = source.asked(evaluation);
    times[replicas - 1] = source.times();
  }
  EXPECT_EQ(asked[1], asked[0]);
  EXPECT_EQ(times[1], times[0]) << "some were read twice";
  EXPECT_EQ(asked[0][true].size(), 2u * kSmallMicroBatches);
}

TEST(ReplicaGroupTest, SpansOfPassesCountMicroBatchesAsTheBatchDoes) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  for (const std::vector<int>& shares : std::vector<std::vector<int>>{{}, {1, kSmallMicroBatches - 1}}) {
    PipelineOptions options = Options(training, 2, 2, "ref");
    options.shares = shares;
    std::mutex mutex;
    std::map<TraceSpan::Kind, std::multiset<int>> seen;
    options.on_span = [&](const TraceSpan& span) {
      const std::lock_guard lock(mutex);
      if (span.step == 2) seen[span.kind].insert(span.micro_batch);
    };
    MustRun(training, options);
    std::multiset<int> whole;  // once on each stage
    for (int micro_batch = 0; micro_batch < kSmallMicroBatches; ++micro_batch) {
      for (int stage = 0; stage < 2; ++stage) whole.insert(micro_batch);
    }
    EXPECT_EQ(seen[TraceSpan::Kind::kForward], whole);
    EXPECT_EQ(seen[TraceSpan::Kind::kBackward], whole);
  }
}

class Spoils : public BatchSource {
 public:
  // Images of micro-batches from `first` on are NaN or infinite at step 2.
  explicit Spoils(int first) : first_(first) {}
  absl::Status Fill(bool evaluation, int64_t step, int micro_batch, const opdag::Op& placeholder, tensor::TensorView out) override {
    const absl::Status status = inner_->Fill(evaluation, step, micro_batch, placeholder, out);
    if (step == 2 && micro_batch >= first_ && out.type.dtype == tensor::DType::kF32) out.f32()[0] = std::numeric_limits<float>::quiet_NaN();
    return status;
  }

 private:
  const int first_;
  const std::unique_ptr<BatchSource> inner_ = testing::SyntheticSource(7, kSmallClasses);
};

TEST(ReplicaGroupTest, NonFiniteLossOfOneReplicaEndsAll) {
  const autodiff::TrainingGraph training = testing::SmallResidualNetwork();
  Spoils source(kSmallMicroBatches - 1);
  PipelineOptions options = Options(training, 2, 2, "ref");
  std::vector<std::pair<int, int>> reported;  // replica and stage
  options.failed = [&](int replica, int stage, const absl::Status& status) {
    if (!absl::IsCancelled(status)) reported.emplace_back(replica, stage);
  };
  const absl::Status status = testing::RunPipeline(training, options, source).status();
  EXPECT_EQ(reported, (std::vector<std::pair<int, int>>{{1, 1}}));
  EXPECT_TRUE(IsNotFinite(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("is nan at step 2, micro-batch ", kSmallMicroBatches - 1)));
}

// Passes everything on; tests change one thing.
class PassedOn : public collective::Communicator {
 public:
  PassedOn(const collective::GroupRank& group_rank, std::unique_ptr<collective::Communicator> inner)
      : Communicator(group_rank), inner_(std::move(inner)) {}
  tensor::Memory& memory() const override { return inner_->memory(); }
  absl::Status AllReduce(std::span<const tensor::TensorView> tensors) override { return inner_->AllReduce(tensors); }
  absl::Status ReduceScatter(std::span<const collective::Exchange> exchanges) override { return inner_->ReduceScatter(exchanges); }
  absl::Status AllGather(std::span<const collective::Exchange> exchanges) override { return inner_->AllGather(exchanges); }
  absl::Status Broadcast(std::span<const tensor::TensorView> tensors, int root) override { return inner_->Broadcast(tensors, root); }
  absl::Status Wait() override { return inner_->Wait(); }
  void Abort(absl::Status why) override { inner_->Abort(std::move(why)); }

 private:
  const std::unique_ptr<collective::Communicator> inner_;
};

// Its sums bring an infinity, as where replica 1's gradients overflow.
class Overflows final : public PassedOn {
 public:
  using PassedOn::PassedOn;
  absl::Status AllReduce(std::span<const tensor::TensorView> tensors) override {
    if (rank() == 1) tensors.front().f32()[0] = std::numeric_limits<float>::infinity();
    return PassedOn::AllReduce(tensors);
  }
};

// Every replica finds it after the sum, and the first tells.
TEST(ReplicaGroupTest, NonFiniteGradientIsReportedOnce) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Options(training, 2, 2, "ref");
  options.join = [](collective::Rendezvous& rendezvous, const collective::GroupRank& group_rank,
                    kernels::Backend& backend) -> absl::StatusOr<std::unique_ptr<collective::Communicator>> {
    auto joined = collective::JoinInProcess(rendezvous, group_rank, backend.memory());
    if (!joined.ok() || group_rank.group != "stage-1") return joined;
    return std::make_unique<Overflows>(group_rank, *std::move(joined));
  };
  std::vector<int> reported, ended;  // replicas
  options.failed = [&](int replica, int, const absl::Status& status) {
    (IsNotFinite(status) ? reported : ended).push_back(replica);
    EXPECT_TRUE(IsNotFinite(status) || absl::IsCancelled(status)) << status;
  };
  const auto source = testing::SyntheticSource(7, kSmallClasses);
  const absl::Status status = testing::RunPipeline(training, options, *source).status();
  EXPECT_EQ(reported, std::vector<int>{0});
  EXPECT_EQ(ended.size(), 3u);
  EXPECT_TRUE(IsNotFinite(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the gradient norm is inf at step 1"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the gradient of parameter "));
}

// Adds in the opposite order, as another group may.
class Backwards final : public PassedOn {
 public:
  using PassedOn::PassedOn;
  absl::Status Broadcast(std::span<const tensor::TensorView> tensors, int root) override {
    return PassedOn::Broadcast(tensors, size() - 1 - root);
  }
};

// Sums of four terms depend on their order, which is each group's own.
TEST(ReplicaGroupTest, CopiesOfASharedParameterKeepTheSameBitsWhateverOrderGroupsAddIn) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Options(training, 4, 2, "ref");
  std::map<std::string, std::map<int, std::vector<std::byte>>> copies;  // by name and stage
  options.finish = [&](int stage, StageExecutor& executor) {
    executor.store().ForEachParameter(
        [&](const std::string& name, tensor::TensorView view) {
          const auto bytes = view.bytes();
          copies[name][stage].assign(bytes.begin(), bytes.end());
        },
        /*owned_only=*/false);
  };
  const PipelineResult forwards = MustRun(training, options);
  options.join = [](collective::Rendezvous& rendezvous, const collective::GroupRank& group_rank,
                    kernels::Backend& backend) -> absl::StatusOr<std::unique_ptr<collective::Communicator>> {
    collective::GroupRank other = group_rank;
    if (group_rank.group == "stage-1") other.rank = group_rank.size - 1 - group_rank.rank;
    auto joined = collective::JoinInProcess(rendezvous, other, backend.memory());
    if (!joined.ok() || group_rank.group != "stage-1") return joined;
    return std::make_unique<Backwards>(group_rank, *std::move(joined));
  };
  const PipelineResult mixed = MustRun(training, options);
  EXPECT_NE(mixed.parameters, forwards.parameters) << "the order made no difference";
  ExpectReplicasAgree(mixed, 4);
  int shared = 0;
  for (const auto& [name, by_stage] : copies) {
    if (by_stage.size() < 2) continue;
    ++shared;
    EXPECT_EQ(by_stage.at(0), by_stage.at(1)) << name;
  }
  EXPECT_EQ(shared, 1) << "the embedding";
}

TEST(ReplicaGroupTest, OneDecisionHoldsForAll) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Options(training, 2, 2, "ref");
  options.steps = 100;
  options.decide = [](int64_t step) { return StageCallbacks::Decision{.stop = step == 3, .checkpoint = step == 2}; };
  std::set<std::tuple<int, int, int64_t>> checkpoints;
  options.checkpoint = [&](int replica, int stage, int64_t step) { checkpoints.insert({replica, stage, step}); };
  const PipelineResult result = MustRun(training, options);
  EXPECT_EQ(result.steps.size(), 3u) << "asked once each step";
  EXPECT_EQ(checkpoints, (std::set<std::tuple<int, int, int64_t>>{{0, 0, 2}, {0, 1, 2}, {1, 0, 2}, {1, 1, 2}}));
  ExpectReplicasAgree(result, 2);
}

TEST(ReplicaGroupTest, AnAbortInTheMiddleEndsAllWithOneError) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  for (const int stages : {1, 2}) {
    PipelineOptions options = Options(training, 2, stages, "ref");
    options.steps = 100;
    options.after_step = [](int64_t step, Inbox& inbox) {
      if (step == 2) inbox.Cancel(absl::UnavailableError("told to stop"));
    };
    // With one stage no inbox is asked for anything: what is given up there is its communicator.
    collective::Communicator* first = nullptr;
    options.join = [&first](collective::Rendezvous& rendezvous, const collective::GroupRank& group_rank, kernels::Backend& backend) {
      auto joined = collective::JoinInProcess(rendezvous, group_rank, backend.memory());
      if (joined.ok() && group_rank.rank == 0 && group_rank.group == "stage-0") first = joined->get();
      return joined;
    };
    if (stages == 1) {
      options.after_step = [&first](int64_t step, Inbox&) {
        if (step == 2) first->Abort(absl::UnavailableError("told to stop"));
      };
    }
    int failed = 0;
    options.failed = [&](int, int, const absl::Status&) { ++failed; };
    const auto source = testing::SyntheticSource(7, kSmallClasses);
    const absl::Status status = testing::RunPipeline(training, options, *source).status();
    EXPECT_EQ(failed, 2 * stages) << "all of them";
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("told to stop"));
  }
}

// Its replica 0 decides on a parameter that no stage has.
class Misleads final : public PassedOn {
 public:
  using PassedOn::PassedOn;
  absl::Status Broadcast(std::span<const tensor::TensorView> tensors, int root) override {
    constexpr size_t kOffendingParameterOffset = 32;  // its place in a decision
    const int32_t no_parameter = std::numeric_limits<int32_t>::max();
    if (rank() == root) std::memcpy(tensors.front().as<std::byte>() + kOffendingParameterOffset, &no_parameter, sizeof(no_parameter));
    return PassedOn::Broadcast(tensors, root);
  }
};

// No user's input is wrong then.
TEST(ReplicaGroupTest, ADecisionThatCannotBeIsAFailureOfTheRun) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Options(training, 2, 1, "ref");
  options.join = [](collective::Rendezvous& rendezvous, const collective::GroupRank& group_rank,
                    kernels::Backend& backend) -> absl::StatusOr<std::unique_ptr<collective::Communicator>> {
    auto joined = collective::JoinInProcess(rendezvous, group_rank, backend.memory());
    if (!joined.ok()) return joined;
    return std::make_unique<Misleads>(group_rank, *std::move(joined));
  };
  const auto source = testing::SyntheticSource(7, kSmallClasses);
  const absl::Status status = testing::RunPipeline(training, options, *source).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("malformed step decision from replica 0; executors of different builds"));
}

TEST(ReplicaGroupTest, ACommunicatorOfOthersIsRefused) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(true);
  PipelineOptions options = Options(training, 2, 1, "ref");
  options.join = [](collective::Rendezvous& rendezvous, collective::GroupRank group_rank, kernels::Backend& backend) {
    group_rank.rank = 1 - group_rank.rank;
    return collective::JoinInProcess(rendezvous, group_rank, backend.memory());
  };
  const auto source = testing::SyntheticSource(7, kSmallClasses);
  const absl::Status other_rank = testing::RunPipeline(training, options, *source).status();
  EXPECT_THAT(std::string(other_rank.message()), HasSubstr("of 2 with the communicator of replica "));
  options.join = [](collective::Rendezvous&, const collective::GroupRank&, kernels::Backend&) { return nullptr; };
  EXPECT_THAT(std::string(testing::RunPipeline(training, options, *source).status().message()), HasSubstr("the communicator of none"));
  options = Options(training, 2, 1, kMemoryApart);
  options.join = [](collective::Rendezvous& rendezvous, const collective::GroupRank& group_rank, kernels::Backend&) {
    return collective::JoinInProcess(rendezvous, group_rank, tensor::HostMemory());
  };
  EXPECT_THAT(std::string(testing::RunPipeline(training, options, *source).status().message()), HasSubstr("tensors of another device"));
}

}  // namespace
}  // namespace fusionllm::runtime
