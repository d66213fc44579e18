#include "lib/workload/workload.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/job/parse.h"

namespace fusionllm::workload {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr char kHead[] = "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n";
constexpr char kGpt[] =
    "  model: {family: gpt2, preset: tiny, config: {nLayer: 1, nHead: 1, nEmbd: 4, vocabSize: 300}}\n"
    "  data: {kind: tokens, path: [tokens.bin]}\n"
    "  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 2}\n";

absl::StatusOr<std::unique_ptr<Workload>> ResolveText(absl::string_view spec, const std::string& folder = "") {
  const absl::StatusOr<job::FusionJob> job = job::ParseFusionJob(absl::StrCat(kHead, spec), "job.yaml");
  if (!job.ok()) return job.status();
  return Resolve(*job, folder);
}

std::string Ids16(int count) {
  std::string bytes;
  for (int id = 1; id <= count; ++id) bytes += {static_cast<char>(id & 0xff), static_cast<char>(id >> 8)};
  return bytes;
}

// The first token of each sample of a micro-batch.
std::vector<int32_t> FirstTokens(DatasetSource& source, const Workload& workload, bool evaluation, int64_t step, int micro_batch) {
  const opdag::Graph& graph = workload.training.graph;
  for (const opdag::Op& op : graph.ops()) {
    if (op.kind != opdag::OpKind::kPlaceholder || op.attributes.Text("role") != "tokens") continue;
    tensor::Tensor out(graph.value(op.outputs[0]).type);
    const absl::Status status = source.Fill(evaluation, step, micro_batch, op, out.view());
    EXPECT_TRUE(status.ok()) << status;
    std::vector<int32_t> first;
    for (int64_t i = 0; i < out.type().elements(); i += out.shape().dim(-1)) first.push_back(out.as<int32_t>()[i]);
    return first;
  }
  ADD_FAILURE() << "no placeholder has the role tokens";
  return {};
}

TEST(WorkloadTest, CutsTheGlobalBatchAsTheJobSaysOrIntoEight) {
  const auto given = ResolveText(kGpt);
  ASSERT_TRUE(given.ok()) << given.status();
  EXPECT_EQ((*given)->micro_batch_size, 2);
  EXPECT_EQ((*given)->micro_batches, 2);
  EXPECT_EQ((*given)->targets_per_sample, 2);
  const auto sizes = [](int global) {
    const auto workload = ResolveText(absl::StrReplaceAll(
        kGpt, {{"globalBatchSize: 4, microBatchSize: 2", absl::StrCat("globalBatchSize: ", global, ", microBatchSize: auto")}}));
    EXPECT_TRUE(workload.ok()) << workload.status();
    return std::pair((*workload)->micro_batch_size, (*workload)->micro_batches);
  };
  EXPECT_EQ(sizes(32), std::pair(int64_t{4}, 8));
  EXPECT_EQ(sizes(4), std::pair(int64_t{1}, 4));
  EXPECT_EQ(sizes(27), std::pair(int64_t{3}, 9));  // 3 is the largest divisor that leaves eight
}

TEST(WorkloadTest, TheGraphHashTellsModelsAndMicroBatchesApart) {
  const auto hash = [](absl::string_view from, absl::string_view to) {
    return (*ResolveText(absl::StrReplaceAll(kGpt, {{from, to}})))->graph_hash;
  };
  const uint64_t same = hash("", "");
  EXPECT_EQ(hash("tokens.bin", "others.bin"), same);
  EXPECT_NE(hash("nEmbd: 4", "nEmbd: 8"), same);
  EXPECT_NE(hash("microBatchSize: 2", "microBatchSize: 1"), same);
  EXPECT_EQ(hash("sequenceLength: 2", "sequenceLength: 2, precision: fp32"), same);
  EXPECT_NE(hash("sequenceLength: 2", "sequenceLength: 2, precision: bf16"), same);
}

TEST(WorkloadTest, PrecisionSaysWhatTheTensorsOfTheGraphAre) {
  const auto dtype_of_logits = [](absl::string_view precision) {
    const auto workload =
        ResolveText(absl::StrReplaceAll(kGpt, {{"sequenceLength: 2", absl::StrCat("sequenceLength: 2, precision: ", precision)}}));
    EXPECT_TRUE(workload.ok()) << workload.status();
    const opdag::Graph& graph = (*workload)->training.graph;
    return graph.value(graph.op(graph.value(graph.loss()).producer).inputs[0]).type.dtype;
  };
  EXPECT_EQ(dtype_of_logits("fp32"), tensor::DType::kF32);
  EXPECT_EQ(dtype_of_logits("bf16"), tensor::DType::kBF16);
}

TEST(WorkloadTest, TheJobsTokenWidthReachesTheData) {
  const base::TempFolder folder;
  folder.Write("tokens.bin", Ids16(100));
  const auto error = [&](absl::string_view path) {
    const auto workload = ResolveText(absl::StrReplaceAll(kGpt, {{"path: [tokens.bin]", path}}), folder.path());
    EXPECT_TRUE(workload.ok()) << workload.status();
    return std::string(DatasetSource::Open(**workload).status().message());
  };
  EXPECT_EQ(error("path: [tokens.bin]"), "");
  EXPECT_THAT(error("path: [tokens.bin], tokenDtype: uint32"), AllOf(HasSubstr("token 131073"), HasSubstr("vocabulary of 300")));
}

TEST(DatasetSourceTest, AnEpochHasEverySampleOnceAndTheCursorSaysWhereItStands) {
  const base::TempFolder folder;
  folder.Write("tokens.bin", Ids16(17));  // windows that start with 1, 3, .. 15
  const auto workload = ResolveText(kGpt, folder.path());
  ASSERT_TRUE(workload.ok()) << workload.status();
  const auto source = DatasetSource::Open(**workload);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<int32_t> seen, second_step;
  for (int64_t step = 1; step <= 2; ++step) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      for (const int32_t id : FirstTokens(**source, **workload, false, step, micro_batch)) {
        seen.push_back(id);
        if (step == 2) second_step.push_back(id);
      }
    }
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(1, 3, 5, 7, 9, 11, 13, 15));
  EXPECT_EQ((*source)->CursorAfter(1).samples_consumed, 4);

  // Resumed as step 2 of another run: the same samples.
  const auto resumed = DatasetSource::Open(**workload);
  (*resumed)->StartAt(2, {.samples_consumed = 4});
  std::vector<int32_t> again = FirstTokens(**resumed, **workload, false, 2, 0);
  for (const int32_t id : FirstTokens(**resumed, **workload, false, 2, 1)) again.push_back(id);
  EXPECT_EQ(again, second_step);
  EXPECT_EQ((*resumed)->CursorAfter(2).samples_consumed, 8);
}

TEST(DatasetSourceTest, TheLastBatchOfAnEpochIsFilledFromTheNext) {
  const base::TempFolder folder;
  folder.Write("tokens.bin", Ids16(19));  // nine windows: two batches of four and one sample
  const auto workload = ResolveText(kGpt, folder.path());
  ASSERT_TRUE(workload.ok()) << workload.status();
  const auto source = DatasetSource::Open(**workload);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<int32_t> seen;
  for (int64_t step = 1; step <= 5; ++step) {
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      for (const int32_t id : FirstTokens(**source, **workload, false, step, micro_batch)) seen.push_back(id);
    }
  }
  const auto windows = ::testing::UnorderedElementsAre(1, 3, 5, 7, 9, 11, 13, 15, 17);
  EXPECT_THAT(std::vector<int32_t>(seen.begin(), seen.begin() + 9), windows);
  EXPECT_THAT(std::vector<int32_t>(seen.begin() + 9, seen.begin() + 18), windows);
}

TEST(DatasetSourceTest, EvaluationReadsTheValidationDataOnceInFileOrder) {
  const base::TempFolder folder;
  folder.Write("tokens.bin", Ids16(17));
  folder.Write("held.bin", Ids16(7));  // windows that start with 1, 3, 5
  const auto workload =
      ResolveText(absl::StrReplaceAll(kGpt, {{"path: [tokens.bin]", "path: [tokens.bin], validation: {path: [held.bin]}"}}), folder.path());
  ASSERT_TRUE(workload.ok()) << workload.status();
  const auto source = DatasetSource::Open(**workload);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->EvaluationSamples(), 3);
  EXPECT_THAT(FirstTokens(**source, **workload, true, 0, 0), ElementsAre(1, 3));
  EXPECT_THAT(FirstTokens(**source, **workload, true, 0, 1), ElementsAre(5, 5)) << "one sample fills the rest";
}

TEST(DatasetSourceTest, SamplesThatDoNotFitTheModelAreNamed) {
  constexpr char kGraph[] =
      "  model: {graph: {inline: 'graph \"g\" { return loss loss = cross_entropy(head, y) head = linear(flat) {out=4} flat = flatten(x) "
      "x = placeholder() {role=\"ROLE\", dtype=\"f32\", shape=[SHAPE]} "
      "y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b]} }'}}\n"
      "  data: {kind: shapes, shapes: {imageSize: 8, numClasses: 4}}\n"
      "  training: {globalBatchSize: 4, microBatchSize: 2}\n";
  const auto error = [&](absl::string_view role, absl::string_view shape) {
    const auto workload = ResolveText(absl::StrReplaceAll(kGraph, {{"ROLE", role}, {"SHAPE", shape}}));
    if (!workload.ok()) return std::string(workload.status().message());
    return std::string(DatasetSource::Open(**workload).status().message());
  };
  EXPECT_EQ(error("images", "b, 8, 8, 3"), "");
  EXPECT_EQ(error("images", "b, 192"), "");
  EXPECT_THAT(error("images", "b, 9, 8, 3"),
              AllOf(HasSubstr("op 'x' wants f32[2, 9, 8, 3]"), HasSubstr("one sample of spec.data is f32[8, 8, 3]"),
                    StartsWith("spec.data: spec.model.graph.inline:1:"), HasSubstr("; write shape=[b, 8, 8, 3] or [b, 192] there, or")));
  // As many values, in another order: channels first would train on scrambled pixels.
  EXPECT_THAT(error("images", "b, 3, 8, 8"), AllOf(HasSubstr("op 'x' wants f32[2, 3, 8, 8]"), HasSubstr("f32[2, 8, 8, 3]")));
  EXPECT_THAT(error("images", "b, 64, 3"), AllOf(HasSubstr("op 'x' wants f32[2, 64, 3]"), HasSubstr("flat, f32[2, 192]")));
  EXPECT_THAT(error("mask", "b, 8, 8, 3"), HasSubstr(": op 'x' has the role 'mask'"));
  EXPECT_FALSE(ResolveText(absl::StrReplaceAll(kGraph, {{"ROLE", "mask"}, {"SHAPE", "b, 192"}})).ok()) << "to plan for it is no use";
}

TEST(DatasetSourceTest, DataOutsideWhatAGraphTakesIsFoundBeforeTheFirstStep) {
  const base::TempFolder folder;
  folder.Write("tokens.bin", Ids16(100));
  constexpr char kGraph[] =
      "  model: {graph: {inline: 'graph \"g\" { return loss loss = cross_entropy(head, y) head = linear(e) {out=CLASSES} "
      "e = embedding(x) {vocab=VOCAB, dim=4} x = placeholder() {role=\"tokens\", dtype=\"i32\", shape=[b, 2]} "
      "y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b, 2]} }'}}\n"
      "  data: {kind: tokens, path: [tokens.bin]}\n"
      "  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 2}\n";
  const auto open = [&](absl::string_view vocab, absl::string_view classes) {
    const auto workload = ResolveText(absl::StrReplaceAll(kGraph, {{"VOCAB", vocab}, {"CLASSES", classes}}), folder.path());
    EXPECT_TRUE(workload.ok()) << workload.status();
    return DatasetSource::Open(**workload).status();
  };
  EXPECT_TRUE(open("101", "101").ok()) << open("101", "101");
  EXPECT_EQ(open("50", "101").code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(open("50", "101").message(), AllOf(HasSubstr("token 50 at byte 98 of"), HasSubstr("vocabulary of 50")));
  EXPECT_THAT(open("101", "60").message(), HasSubstr("vocabulary of 60"));
}

TEST(DatasetSourceTest, MoreShapesThanClassesOfAGraphAreFoundBeforeTheFirstStep) {
  const auto workload = ResolveText(
      "  model: {graph: {inline: 'graph \"g\" { return loss loss = cross_entropy(head, y) head = linear(x) {out=4} "
      "x = placeholder() {role=\"images\", dtype=\"f32\", shape=[b, 192]} "
      "y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b]} }'}}\n"
      "  data: {kind: shapes, shapes: {imageSize: 8, numClasses: 5}}\n");
  EXPECT_THAT(workload.status().message(), AllOf(HasSubstr("spec.data.shapes.numClasses is 5"), HasSubstr("only 4 classes")))
      << "to plan for it is no use";
}

TEST(WorkloadTest, AGraphWithoutParametersHasNothingToTrain) {
  const auto workload = ResolveText(
      "  model: {graph: {inline: 'graph \"g\" { return loss loss = cross_entropy(x, y) "
      "x = placeholder() {role=\"images\", dtype=\"f32\", shape=[b, 192]} "
      "y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b]} }'}}\n"
      "  data: {kind: shapes, shapes: {imageSize: 8, numClasses: 5}}\n");
  EXPECT_EQ(std::string(workload.status().message()), "spec.model.graph.inline: graph 'g' has no parameter, so there is nothing to train");
}

TEST(WorkloadTest, LossOfSeveralTermsIsWeighedOrRefusedWhereItsOpStands) {
  const auto resolved = [](absl::string_view loss) {
    return ResolveText(absl::StrCat("  model: {graph: {inline: 'graph \"g\" { ce = cross_entropy(head, y) ", loss,
                                    " return loss head = linear(x) {out=4} "
                                    "x = placeholder() {role=\"images\", dtype=\"f32\", shape=[b, 192]} "
                                    "y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[b]} }'}}\n"
                                    "  data: {kind: shapes, shapes: {imageSize: 8, numClasses: 4}}\n"));
  };
  const auto scaled = resolved("loss = scale(ce) {factor=0.5}");
  ASSERT_TRUE(scaled.ok()) << scaled.status();
  EXPECT_NE((*scaled)->training.graph.FindOp("ce.target_weight"), opdag::kNone);
  EXPECT_EQ((*scaled)->training.counted, opdag::kNone);
  EXPECT_EQ((*scaled)->training.target_ops.size(), 1u);
  const auto source = DatasetSource::Open(**scaled);
  EXPECT_TRUE(source.ok()) << source.status();
  EXPECT_THAT(std::string(resolved("loss = exp(ce)").status().message()), StartsWith("spec.model.graph.inline:1:41: op 'loss' (exp): "));
}

// What no file has to be read for: plans, too, are refused.
TEST(WorkloadTest, DataOfAnotherKindThanTheGraphReadsIsNamedAsSuch) {
  constexpr char kGraph[] =
      "  model: {graph: {inline: 'graph \"g\" { return loss loss = cross_entropy(head, y) INNER "
      "x = placeholder() {role=\"ROLE\", SHAPE} y = placeholder() {role=\"labels\", dtype=\"i32\", shape=[LABELS]} }'}}\n"
      "  data: {DATA}\n"
      "  training: {globalBatchSize: 4, microBatchSize: 2, sequenceLength: 6}\n";
  const auto error = [&](bool images, absl::string_view shape, absl::string_view data) {
    const auto workload =
        ResolveText(absl::StrReplaceAll(kGraph, {{"INNER", images ? "head = linear(flat) {out=4} flat = flatten(x)"
                                                                  : "head = linear(e) {out=300} e = embedding(x) {vocab=300, dim=4}"},
                                                 {"ROLE", images ? "images" : "tokens"},
                                                 {"SHAPE", absl::StrCat("dtype=\"", images ? "f32" : "i32", "\", shape=[", shape, "]")},
                                                 {"LABELS", images ? "b" : shape},
                                                 {"DATA", data}}));
    return std::string(workload.status().message());
  };
  EXPECT_EQ(error(true, "b, 32, 32, 3", "kind: cifar10, path: [nowhere]"), "");
  EXPECT_EQ(error(false, "b, 6", "kind: text, path: [nowhere]"), "");
  for (const char* kind : {"text", "tokens"}) {
    EXPECT_EQ(error(true, "b, 8, 8, 3", absl::StrCat("kind: ", kind, ", path: [nowhere]")),
              absl::StrCat("spec.data.kind: ", kind,
                           " gives tokens, and the graph reads images (spec.model.graph.inline:1:101: placeholder 'x' of f32[8, 8, 3] a "
                           "sample): "
                           "take data of kind cifar10, idx or shapes, or a graph that reads tokens"));
  }
  for (const char* data : {"kind: shapes", "kind: cifar10, path: [nowhere]", "kind: idx, path: [nowhere]"}) {
    EXPECT_THAT(error(false, "b, 6", data),
                AllOf(HasSubstr(" gives images, and the graph reads tokens (spec.model.graph.inline:1:"),
                      HasSubstr(": placeholder 'x' of i32[6] a sample)"), HasSubstr("take data of kind text or tokens")));
  }
  EXPECT_THAT(error(true, "b, 9, 8, 3", "kind: cifar10, path: [nowhere]"),
              AllOf(HasSubstr("op 'x' wants f32[2, 9, 8, 3]"), HasSubstr("f32[32, 32, 3]")));
  EXPECT_THAT(error(true, "b, 9, 8, 3", "kind: shapes, shapes: {imageSize: 8, numClasses: 4}"), HasSubstr("f32[8, 8, 3]"));
  EXPECT_THAT(error(false, "b, 7", "kind: text, path: [nowhere]"), AllOf(HasSubstr("op 'x' wants i32[2, 7]"), HasSubstr("i32[6]")));
  EXPECT_EQ(error(true, "b, 9, 8, 3", "kind: idx, path: [nowhere]"), "") << "the files say their size";
}

// An idx file of u8 with these extents below 256, every byte the same.
std::string Idx(std::initializer_list<int> extents, char value) {
  std::string bytes = {0, 0, 8, static_cast<char>(extents.size())};
  size_t count = 1;
  for (const int extent : extents) {
    bytes += {0, 0, 0, static_cast<char>(extent)};
    count *= static_cast<size_t>(extent);
  }
  return bytes + std::string(count, value);
}

TEST(DatasetSourceTest, AResNetReadsGrayIdxImages) {
  const base::TempFolder folder;
  folder.Write("labels", Idx({2}, 1));
  folder.Write("images28", Idx({2, 28, 28}, 7));
  folder.Write("images12", Idx({2, 12, 12}, 7));
  folder.Write("images9x8", Idx({2, 9, 8}, 7));
  constexpr char kResNet[] =
      "  model: {family: resnet, config: {CONFIG}}\n"
      "  data: {kind: idx, path: [IMAGES, labels]}\n"
      "  training: {globalBatchSize: 2, microBatchSize: 2}\n";
  const auto open = [&](absl::string_view config, absl::string_view images) -> absl::Status {
    const auto workload = ResolveText(absl::StrReplaceAll(kResNet, {{"CONFIG", config}, {"IMAGES", images}}), folder.path());
    if (!workload.ok()) return workload.status();
    const auto source = DatasetSource::Open(**workload);
    if (!source.ok()) return source.status();
    for (const opdag::Op& op : (*workload)->training.graph.ops()) {
      if (op.kind != opdag::OpKind::kPlaceholder || op.attributes.Text("role") != "images") continue;
      tensor::Tensor out((*workload)->training.graph.value(op.outputs[0]).type);
      return (*source)->Fill(false, 1, 0, op, out.view());
    }
    return absl::InternalError("no images");
  };
  EXPECT_TRUE(open("numClasses: 10", "images28").ok()) << open("numClasses: 10", "images28");
  EXPECT_TRUE(open("imageSize: 12", "images12").ok()) << open("imageSize: 12", "images12");
  EXPECT_THAT(open("numClasses: 10", "images12").message(),
              AllOf(HasSubstr("op 'images' wants f32[2, 28, 28, 3]"), HasSubstr("f32[12, 12, 3]"),
                    HasSubstr("give spec.model.config.imageSize: 12")));
  EXPECT_THAT(open("imageSize: 9", "images9x8").message(), HasSubstr("square images"));
  EXPECT_THAT(open("numClasses: 10", "missing").message(), HasSubstr("missing"));
}

}  // namespace
}  // namespace fusionllm::workload
