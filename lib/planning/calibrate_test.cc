#include "lib/planning/calibrate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "lib/base/philox.h"
#include "lib/estimator/graph_cost.h"
#include "lib/job/parse.h"
#include "lib/planning/op_measurement.h"
#include "lib/planning/synthetic_data.h"

namespace fusionllm::planning {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;

std::unique_ptr<workload::Workload> TinyGpt(int layers, int micro_batch_size = 2) {
  const auto job = job::ParseFusionJob(absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n"
                                                    "  model: {family: gpt2, preset: tiny, config: {nLayer: ",
                                                    layers,
                                                    ", nHead: 2, nEmbd: 16, vocabSize: 32, blockSize: 8}}\n"
                                                    "  data: {kind: tokens, path: [x.bin]}\n"
                                                    "  training: {steps: 5, globalBatchSize: 4, microBatchSize: ",
                                                    micro_batch_size, ", sequenceLength: 8}\n"),
                                       "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  auto workload = workload::Resolve(*job, "/");
  EXPECT_TRUE(workload.ok()) << workload.status();
  return *std::move(workload);
}

CalibrationOptions Quick() { return {.seconds = 0, .min_passes = 2}; }

std::unique_ptr<kernels::Backend> Reference() { return *kernels::CreateBackend("ref", {}); }

std::vector<std::string> Signatures(const workload::Workload& workload) {
  std::vector<std::string> signatures;
  const opdag::Graph& graph = workload.training.graph;
  const std::vector<bool> views = autodiff::ViewsOf(workload.training);
  for (size_t id = 0; id < views.size(); ++id) {
    const opdag::Op& op = graph.ops()[id];
    if (op.kind != opdag::OpKind::kPlaceholder && !views[id]) signatures.push_back(estimator::OpSignature(graph, op));
  }
  return signatures;
}

// Counts the ops that are made ready to run.
class CountingBackend final : public kernels::Backend {
 public:
  absl::string_view name() const override { return "counting"; }
  std::string Describe() const override { return "counting"; }
  bool Supports(opdag::OpKind kind) const override { return reference_->Supports(kind); }
  absl::StatusOr<std::unique_ptr<kernels::Kernel>> Prepare(const opdag::Graph& graph, const opdag::Op& op) override {
    ++prepared;
    return reference_->Prepare(graph, op);
  }
  int prepared = 0;

 private:
  const std::unique_ptr<kernels::Backend> reference_ = Reference();
};

// Says how often it was asked, and gives zeros.
class CountingData final : public runtime::BatchSource {
 public:
  absl::Status Fill(bool, int64_t, int, const opdag::Op&, tensor::TensorView out) override {
    ++asked;
    std::fill_n(out.as<std::byte>(), out.type.bytes(), std::byte{0});
    return absl::OkStatus();
  }
  int asked = 0;
};

TEST(Calibrate, EveryOpOfTheGraphThatIsRunIsInTheProfile) {
  const auto workload = TinyGpt(2);
  const auto backend = Reference();
  const auto profile = Calibrate(*workload, *backend, Quick());
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const std::string& signature : Signatures(*workload)) {
    ASSERT_THAT(profile->ops, Contains(Key(signature)));
    EXPECT_GT(profile->ops.at(signature).seconds, 0) << signature;
  }
  for (const auto& [signature, op] : profile->ops) EXPECT_FALSE(signature.starts_with("reshape")) << signature << " takes no time";
  EXPECT_GT(profile->update_seconds_per_element, 0);
  EXPECT_EQ(profile->codecs.size(), 6);
  for (const auto& [name, codec] : profile->codecs) {
    EXPECT_GT(codec.encode_message_seconds, 0) << name;
    EXPECT_GT(codec.decode_message_seconds, 0) << name;
    EXPECT_GT(codec.encode_seconds + codec.encode_kept_seconds, 0) << name;
    EXPECT_GT(codec.decode_seconds + codec.decode_kept_seconds, 0) << name;
    EXPECT_EQ(codec.encode_kept_seconds > 0 || codec.decode_kept_seconds > 0, name == "topk") << name;
  }
  EXPECT_EQ(profile->backend, "ref");
}

TEST(Calibrate, RejectsOpBeyondProcessMemory) {
  const auto workload = TinyGpt(2);
  CountingBackend backend;
  CalibrationOptions options = Quick();
  options.memory_bytes = 4096;
  const auto refused = Calibrate(*workload, backend, options);
  EXPECT_TRUE(tensor::IsOutOfMemory(refused.status())) << refused.status();
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::ContainsRegex("op '.*' \\(.*\\) needs .* to be measured .*; this process may use 4.0 KiB"));
  EXPECT_EQ(backend.prepared, 0);
}

TEST(Calibrate, EveryClassOfOpsGetsItsRates) {
  const auto workload = TinyGpt(2);
  const auto backend = Reference();
  const auto profile = Calibrate(*workload, *backend, Quick());
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const char* op_class : {"matmul", "attention", "normalization", "elementwise", "gather", "reduction"}) {
    ASSERT_THAT(profile->rates, Contains(Key(op_class)));
    const estimator::OpRate& rate = profile->rates.at(op_class);
    EXPECT_GE(rate.samples, 3) << op_class << ": two sizes of at least two ops, or of one with its gradient";
    EXPECT_TRUE(std::isfinite(rate.relative_error)) << op_class;
    EXPECT_GT(rate.overhead_s + rate.seconds_per_flop + rate.seconds_per_byte, 0) << op_class;
  }
}

TEST(Calibrate, AnotherMicroBatchIsMeasuredForTheRates) {
  const auto backend = Reference();
  const auto profile = Calibrate(*TinyGpt(1, /*micro_batch_size=*/2), *backend, Quick());
  ASSERT_TRUE(profile.ok()) << profile.status();
  for (const std::string& signature : Signatures(*TinyGpt(1, /*micro_batch_size=*/1))) EXPECT_THAT(profile->ops, Contains(Key(signature)));
}

TEST(Calibrate, ALargerMicroBatchIsLeftOutWhereTheJobsOwnTakesLong) {
  const auto backend = Reference();
  std::vector<std::string> larger = Signatures(*TinyGpt(1, /*micro_batch_size=*/2));
  const std::vector<std::string> own = Signatures(*TinyGpt(1, /*micro_batch_size=*/1));  // the loss's weight has the same size in both
  std::erase_if(larger, [&](const std::string& op) { return std::find(own.begin(), own.end(), op) != own.end(); });
  CalibrationOptions options = Quick();  // all takes longer than no time
  const auto without = Calibrate(*TinyGpt(1, /*micro_batch_size=*/1), *backend, options);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(std::count_if(larger.begin(), larger.end(), [&](const std::string& op) { return without->ops.contains(op); }), 0);
  EXPECT_THAT(without->rates, Contains(Key("matmul")));
  options.seconds = 100;
  options.max_passes = 2;
  const auto with = Calibrate(*TinyGpt(1, /*micro_batch_size=*/1), *backend, options);
  ASSERT_TRUE(with.ok()) << with.status();
  for (const std::string& signature : larger) EXPECT_THAT(with->ops, Contains(Key(signature)));
}

TEST(Calibrate, ReadingDataIsTimedOnlyWhenThereIsData) {
  const auto workload = TinyGpt(1);
  const auto backend = Reference();
  CalibrationOptions options = Quick();
  EXPECT_THAT(Calibrate(*workload, *backend, options)->data_seconds_per_byte, IsEmpty());
  CountingData data;
  options.data = &data;
  const auto profile = Calibrate(*workload, *backend, options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_GE(data.asked, 2 * 2) << "tokens and targets, twice";
  ASSERT_THAT(profile->data_seconds_per_byte, ElementsAre(Key("tokens")));
  EXPECT_GT(profile->data_seconds_per_byte.at("tokens"), 0);
}

TEST(Calibrate, CancellingEndsIt) {
  const auto backend = Reference();
  CalibrationOptions options = Quick();
  options.cancelled = [] { return true; };
  EXPECT_EQ(Calibrate(*TinyGpt(1), *backend, options).status().code(), absl::StatusCode::kCancelled);
}

TEST(Calibrate, ProfileSurvivesTheWire) {
  const auto backend = Reference();
  CountingData data;
  CalibrationOptions options = Quick();
  options.data = &data;
  auto profile = Calibrate(*TinyGpt(1), *backend, options);
  ASSERT_TRUE(profile.ok()) << profile.status();
  profile->name = "lab-0";
  profile->memory_bytes = 1 << 30;
  const auto parsed = wire::ParseProfile(wire::PrintProfile(*profile));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, *profile);
}

TEST(MeasureGraph, SlicesAreConsecutiveOpsOfTheAskedSize) {
  const auto workload = TinyGpt(4);
  const autodiff::TrainingGraph& training = workload->training;
  EXPECT_THAT(SlicesOf(training, 2, int64_t{1} << 40), ::testing::Each(0));
  const std::vector<int> slices = SlicesOf(training, 2, 20'000);
  EXPECT_GT(slices.back(), 2);
  EXPECT_EQ(slices[training.graph.FindOp("targets")], 0);
  int before = 0;
  for (opdag::OpId op = 0; op < training.forward_ops; ++op) {
    if (training.graph.op(op).kind == opdag::OpKind::kPlaceholder) continue;
    EXPECT_TRUE(slices[op] == before || slices[op] == before + 1) << training.graph.op(op).name;
    before = slices[op];
  }
}

TEST(MeasureGraph, LayersLikeOthersAreNotMeasuredAgain) {
  const auto measure = [](int layers, int64_t slice_bytes, int& prepared) {
    const auto workload = TinyGpt(layers);
    CountingBackend backend;
    SyntheticData data(workload->training.graph);
    const auto measured = MeasureGraph(workload->training, workload::StageConfigOf(*workload), backend, data,
                                       {.min_micro_batches = 1, .max_micro_batches = 1},
                                       /*in_flight=*/1, slice_bytes);
    EXPECT_TRUE(measured.ok()) << measured.status();
    prepared = backend.prepared;
    std::vector<std::string> signatures;
    for (const auto& [signature, op] : measured->ops) signatures.push_back(signature);
    return signatures;
  };
  constexpr int64_t kWhole = int64_t{1} << 40, kOneLayer = 20'000;
  int whole = 0, sliced = 0, deep = 0;
  EXPECT_EQ(measure(4, kWhole, whole), measure(4, kOneLayer, sliced));
  EXPECT_EQ(measure(24, kOneLayer, deep).size(), measure(4, kOneLayer, sliced).size());
  EXPECT_LE(sliced, whole);
  EXPECT_LT(deep, 3 * sliced) << "six times the layers";
}

TEST(MeasureGraph, AMicroBatchBesideOthersHasTheSameOps) {
  const auto workload = TinyGpt(1);
  const auto signatures = [&](int in_flight, int64_t slice_bytes) {
    CountingBackend backend;
    SyntheticData data(workload->training.graph);
    const auto measured = MeasureGraph(workload->training, workload::StageConfigOf(*workload), backend, data,
                                       {.min_micro_batches = 1, .max_micro_batches = 1}, in_flight, slice_bytes);
    EXPECT_TRUE(measured.ok()) << measured.status();
    std::vector<std::string> names;
    for (const auto& [signature, op] : measured->ops) {
      EXPECT_GT(op.seconds, 0) << signature;
      names.push_back(signature);
    }
    return names;
  };
  const std::vector<std::string> alone = signatures(1, kSliceBytes);
  EXPECT_EQ(signatures(4, kSliceBytes), alone);
  EXPECT_EQ(signatures(1000, 20'000), alone) << "where a thousand have no room, one is kept";
}

TEST(CalibrateTest, EmulatedDevicesAreTimedAsPartOfAPipelineAndUndisturbed) {
  const CalibrationOptions options = ForEmulatedDevices({.threads = 3, .seconds = 0.1});
  EXPECT_EQ(options.threads, 3);
  EXPECT_EQ(options.seconds, 0.1) << "who asks for less time gets less";
  EXPECT_EQ(options.quantile, runtime::kUncontendedQuantile);
  EXPECT_GT(options.in_flight, 1);
  EXPECT_GT(options.max_passes, CalibrationOptions().max_passes);
}

TEST(SyntheticData, IdsCoverTheirRangeAndNoMore) {
  const auto workload = TinyGpt(1);
  const opdag::Graph& graph = workload->training.graph;
  SyntheticData data(graph);
  for (const char* name : {"tokens", "targets"}) {
    const opdag::Op& op = graph.op(graph.FindOp(name));
    tensor::Tensor out(graph.value(op.outputs[0]).type);
    std::set<int32_t> seen;
    for (int micro_batch = 0; micro_batch < 40; ++micro_batch) {
      ASSERT_TRUE(data.Fill(false, 1, micro_batch, op, out.view()).ok());
      seen.insert(out.as<int32_t>(), out.as<int32_t>() + out.type().elements());
    }
    EXPECT_EQ(*seen.begin(), 0) << name;
    EXPECT_EQ(*seen.rbegin(), 31) << name;
  }
}

TEST(Calibrate, FitTopKGivesNoNegativeSecondsForAnyMeasurements) {
  const TopKSeconds exact = FitTopK(2, 1e-9 + 4e-9 / 2, 20, 1e-9 + 4e-9 / 20);
  EXPECT_NEAR(exact.value_s, 1e-9, 1e-15);
  EXPECT_NEAR(exact.kept_s, 4e-9, 1e-15);
  const base::CounterRng rng(1, "seconds");
  for (uint64_t i = 0; i < 10'000; ++i) {
    const double high_s = 1e-9 * rng.Uniform(2 * i), low_s = 1e-7 * rng.Uniform(2 * i + 1);  // as on a machine that others use
    const TopKSeconds seconds = FitTopK(2, low_s, 20, high_s);
    ASSERT_GE(seconds.value_s, 0) << high_s << " and " << low_s;
    ASSERT_GE(seconds.kept_s, 0);
    ASSERT_LE(seconds.value_s, high_s);
  }
}

}  // namespace
}  // namespace fusionllm::planning
