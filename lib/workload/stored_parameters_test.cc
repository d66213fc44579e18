#include "lib/workload/stored_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "lib/base/testing/temp_folder.h"
#include "lib/checkpoint/safetensors.h"
#include "lib/job/parse.h"
#include "lib/workload/forward_graph.h"

namespace fusionllm::workload {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

job::FusionJob Gpt2(const std::string& config, const std::string& init = "{}") {
  const auto job = job::ParseFusionJob(
      absl::StrCat("apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n  model: {family: gpt2, init: ",
                   init, ", config: {nHead: 2, nEmbd: 8, vocabSize: 256, ", config,
                   "}}\n  data: {kind: text, path: [a]}\n  training: {sequenceLength: 4}\n"),
      "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(job::FusionJob{});
}

job::FusionJob ResNet(int classes, const std::string& init = "{}", int depth = 18) {
  const auto job = job::ParseFusionJob(
      absl::StrCat(
          "apiVersion: fusionllm.io/v1alpha1\nkind: FusionJob\nmetadata: {name: test}\nspec:\n  model: {family: resnet, preset: ", depth,
          ", init: ", init, ", config: {numClasses: ", classes, "}}\n  data: {kind: shapes, shapes: {samples: 8, imageSize: 8}}\n"),
      "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(job::FusionJob{});
}

// A .safetensors file with the parameters of a job and whatever a test adds: element i of a tensor is `first` + i.
class StoredFile {
 public:
  explicit StoredFile(const job::FusionJob& job) {
    const auto graph = BuildForwardGraph(job, "");
    EXPECT_TRUE(graph.ok()) << graph.status();
    for (const opdag::Parameter& parameter : graph->parameters()) Add(parameter.name, parameter.type.shape, 0, parameter.type.dtype);
  }
  StoredFile& Add(const std::string& name, tensor::Shape shape, float first, tensor::DType dtype = tensor::DType::kF32) {
    auto made = std::make_unique<tensor::Tensor>(tensor::TensorType{dtype, std::move(shape)});
    for (int64_t i = 0; dtype == tensor::DType::kF32 && i < made->type().shape.elements(); ++i) {
      made->f32()[i] = first + static_cast<float>(i);
    }
    tensors_[name] = std::move(made);
    return *this;
  }
  StoredFile& RemoveEnding(const std::string& ending) {
    std::erase_if(tensors_, [&](const auto& tensor) { return tensor.first.ends_with(ending); });
    return *this;
  }
  StoredFile& Remove(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  // Without `prefix`, in front of the names that have it.
  absl::Status Check(const job::FusionJob& job, const std::string& prefix = "") const { return Warnings(job, prefix).status(); }
  absl::StatusOr<std::vector<std::string>> Warnings(const job::FusionJob& job, const std::string& prefix = "",
                                                    ReadFor reason = ReadFor::kStart) const {
    std::vector<checkpoint::NamedTensor> named;
    for (const auto& [name, tensor] : tensors_) {
      named.push_back({.name = name.starts_with(prefix) ? name.substr(prefix.size()) : name, .view = std::as_const(*tensor).view()});
    }
    const std::string path = folder_ / "start.safetensors";
    EXPECT_TRUE(checkpoint::WriteSafetensors(path, named).ok());
    const auto reader = checkpoint::CheckpointReader::Open(path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return CheckStart(job, *BuildForwardGraph(job, ""), *reader, reason);
  }

 private:
  const base::TempFolder folder_;
  std::map<std::string, std::unique_ptr<tensor::Tensor>> tensors_;
};

TEST(StoredParametersTest, TheModelsOwnParametersStartIt) {
  const job::FusionJob job = Gpt2("nLayer: 2");
  EXPECT_TRUE(StoredFile(job).Check(job).ok());
  EXPECT_TRUE(StoredFile(job).Check(job, "transformer.").ok()) << "as the published ones are named";
}

TEST(StoredParametersTest, ALayerThatTheJobDoesNotHaveIsRefused) {
  const absl::Status refused = StoredFile(Gpt2("nLayer: 2")).Check(Gpt2("nLayer: 1"));
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("start.safetensors: it is of another model: spec.model.config.nLayer 2 -> 1;"),
                    HasSubstr("12 tensors that the model does not have: transformer.h.1.attn.c_attn.bias"),
                    HasSubstr("transformer.h.1.mlp.c_proj.weight; "),
                    HasSubstr("; give the file's own spec.model.config.nLayer: 2, or leave them unread by spec.model.init.skip: "
                              "['transformer.h.1.*']")));
  EXPECT_TRUE(StoredFile(Gpt2("nLayer: 2")).Check(Gpt2("nLayer: 1", "{skip: ['transformer.h.1.*']}")).ok());
  EXPECT_TRUE(StoredFile(Gpt2("nLayer: 2")).Check(Gpt2("nLayer: 1", "{ignore: ['transformer.h.1.*']}")).ok());
}

TEST(StoredParametersTest, SizesThatDifferAreNamedByTheirFields) {
  const absl::Status refused = StoredFile(Gpt2("nLayer: 1")).Check(Gpt2("nLayer: 2, blockSize: 6"));
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("spec.model.config.nLayer 1 -> 2, spec.model.config.blockSize 4 -> 6"),
                    HasSubstr("it has no tensor 'transformer.h.1.ln_1.weight' and 11 more that the model has: transformer.h.1.ln_1.bias, "),
                    HasSubstr("transformer.wpe.weight is [4, 8], not [6, 8]"),
                    HasSubstr("spec.model.init.skip: ['transformer.h.1.*', 'transformer.wpe.*']")));
  EXPECT_TRUE(
      StoredFile(Gpt2("nLayer: 1")).Check(Gpt2("nLayer: 2, blockSize: 6", "{skip: ['transformer.h.1.*', 'transformer.wpe.*']}")).ok());
}

TEST(StoredParametersTest, BuffersOfOtherProgramsAreNoParameters) {
  const job::FusionJob job = Gpt2("nLayer: 1");
  StoredFile file(job);
  file.Add("transformer.h.0.attn.bias", {1, 1, 4, 4}, 0).Add("transformer.h.0.attn.masked_bias", {}, -1e4F);
  EXPECT_TRUE(file.Check(job).ok());
  file.Add("optimizer.state.0", {2}, 0).Add("transformer.wte.weight.exp_avg", {2}, 0);
  EXPECT_THAT(*file.Warnings(job), IsEmpty());
}

TEST(StoredParametersTest, WarnsOnceOfTensorsOutsideTheModel) {
  const job::FusionJob job = Gpt2("nLayer: 1");
  StoredFile file(job);
  for (const char* name : {"extra.scale", "score.weight", "value.0", "value.1", "value.2", "value.3"}) file.Add(name, {2}, 0);
  const auto warnings = file.Warnings(job);
  ASSERT_TRUE(warnings.ok()) << warnings.status();
  EXPECT_THAT(*warnings, ElementsAre(AllOf(HasSubstr("6 tensors that the model does not have, left unread: extra.scale, score.weight, "),
                                           HasSubstr("and 1 more"))));
  EXPECT_THAT(*file.Warnings(Gpt2("nLayer: 1", "{ignore: ['value.*', 's*'], skip: ['extra.*']}")), IsEmpty());
}

TEST(StoredParametersTest, ReportsAllMismatchedTensorsWithRemedy) {
  const job::FusionJob job = ResNet(10);
  StoredFile file(job);
  file.Add("fc.weight", {1000, 512}, 0).Add("fc.bias", {1000}, 0).Remove("conv1.weight").Remove("layer4.1.bn2.bias");
  const absl::Status refused = file.Check(job);
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("spec.model.config.numClasses 1000 -> 10"),
                                       HasSubstr("it has no tensor 'conv1.weight' and 1 more that the model has: layer4.1.bn2.bias"),
                                       HasSubstr("fc.weight is [1000, 512], not [10, 512], fc.bias is [1000], not [10]"),
                                       HasSubstr("spec.model.init.skip: ['conv1.*', 'layer4.1.bn2.bias', 'fc.*']")));
  EXPECT_TRUE(file.Check(ResNet(10, "{skip: ['conv1.*', 'layer4.1.bn2.bias', 'fc.*']}")).ok());
  EXPECT_FALSE(file.Warnings(ResNet(10, "{skip: ['conv1.*', 'layer4.1.bn2.bias', 'fc.*']}"), "", ReadFor::kEvaluation).ok())
      << "nothing trains what is fresh";
}

TEST(StoredParametersTest, AListOfManyTensorsIsCut) {
  StoredFile file(ResNet(10));
  const absl::Status refused = file.Check(ResNet(10, "{}", 34));
  EXPECT_THAT(refused.message(),
              AllOf(HasSubstr("spec.model.preset 18 -> 34"), HasSubstr(" and 79 more that the model has: "), HasSubstr(" and 60 more")));
}

TEST(StoredParametersTest, CountersBeginAtZeroAndRunningStatisticsMustBeThere) {
  const job::FusionJob job = ResNet(10);
  StoredFile file(job);
  file.RemoveEnding(".num_batches_tracked");
  EXPECT_TRUE(file.Check(job).ok()) << file.Check(job);
  EXPECT_TRUE(file.Warnings(job, "", ReadFor::kEvaluation).ok());
  file.RemoveEnding(".running_mean").RemoveEnding(".running_var");
  EXPECT_THAT(file.Check(job).message(),
              AllOf(HasSubstr("running statistics of batch norms, with which a trained model computes, are not there: bn1.running_mean, "
                              "bn1.running_var, "),
                    HasSubstr(" and 20 more"), HasSubstr("spec.model.init.skip: ['*.running_mean', '*.running_var']")));
  EXPECT_TRUE(file.Check(ResNet(10, "{skip: ['*.running_*']}")).ok());
}

TEST(StoredParametersTest, CountersOfAnotherTypeBeginAtZeroToo) {
  const job::FusionJob job = ResNet(10);
  StoredFile file(job);
  file.Add("bn1.num_batches_tracked", {}, 7, tensor::DType::kF32).Add("layer1.0.bn1.num_batches_tracked", {1}, 7, tensor::DType::kI64);
  for (const ReadFor reason : {ReadFor::kStart, ReadFor::kEvaluation}) {
    EXPECT_TRUE(file.Warnings(job, "", reason).ok()) << file.Warnings(job, "", reason).status();
  }
  EXPECT_FALSE(file.Warnings(job, "", ReadFor::kResume).ok()) << "a checkpoint of ours has them as they are";
}

TEST(StoredParametersTest, MatricesThatLieTheOtherWayRoundAreSaidToAndNotAdvisedAway) {
  const job::FusionJob job = Gpt2("nLayer: 1");
  StoredFile file(job);
  file.Add("transformer.h.0.attn.c_attn.weight", {24, 8}, 0).Add("transformer.h.0.mlp.c_fc.weight", {32, 8}, 0);
  const std::string refused(file.Check(job).message());
  EXPECT_THAT(refused,
              AllOf(HasSubstr("transpose these matrices"), HasSubstr("c_attn.weight is [24, 8], not [8, 24]"), Not(HasSubstr("skip"))));
  file.Add("transformer.ln_f.bias", {9}, 0);
  EXPECT_THAT(std::string(file.Check(job).message()), Not(HasSubstr("transpose"))) << "something else differs, too";
}

TEST(StoredParametersTest, APatternThatMatchesNothingIsRefused) {
  const job::FusionJob job = Gpt2("nLayer: 1", "{skip: ['wpe.*', 'head.*', 'transformer.ln_f.*']}");
  EXPECT_THAT(StoredFile(job).Check(job).message(),
              AllOf(HasSubstr("'wpe.*' (did you mean '*wpe.*'?)"), HasSubstr("'head.*'; the model has names like 'transformer."),
                    Not(HasSubstr("ln_f.*"))));
}

TEST(StoredParametersTest, ADtypeThatTheModelCannotReadIsNamed) {
  const job::FusionJob job = Gpt2("nLayer: 1");
  StoredFile file(job);
  file.Add("transformer.ln_f.bias", {8}, 0, tensor::DType::kI32).Add("transformer.ln_f.weight", {8}, 0, tensor::DType::kBF16);
  EXPECT_THAT(file.Check(job).message(),
              AllOf(HasSubstr("1 tensor is I32, where F32, F16 and BF16 are read: transformer.ln_f.bias; convert "
                              "the file to one of these types"),
                    Not(HasSubstr("ln_f.weight")), Not(HasSubstr("skip"))));
}

TEST(StoredParametersTest, ManyTensorsOfAnotherTypeAreCountedAndToBeConverted) {
  const job::FusionJob job = Gpt2("nLayer: 1");
  StoredFile file(job);
  for (const char* name :
       {"attn.c_attn.bias", "attn.c_proj.bias", "ln_1.bias", "ln_1.weight", "ln_2.bias", "ln_2.weight", "mlp.c_proj.bias"}) {
    const int64_t size = std::string(name) == "attn.c_attn.bias" ? 24 : 8;
    file.Add(absl::StrCat("transformer.h.0.", name), {size}, 0, tensor::DType::kI32);
  }
  EXPECT_THAT(file.Check(job).message(), AllOf(HasSubstr("7 tensors are I32, where F32, F16 and BF16 are read: transformer.h.0."),
                                               HasSubstr(" and 2 more; convert the file"), Not(HasSubstr("skip"))));
}

TEST(StoredParametersTest, ATiedHeadMayBeStoredTwiceAndOfItsOwnItIsRefused) {
  const job::FusionJob tied = Gpt2("nLayer: 1"), untied = Gpt2("nLayer: 1, tieWeights: false");
  StoredFile file(tied);
  EXPECT_THAT(file.Check(untied).message(), HasSubstr("spec.model.config.tieWeights true -> false"));
  EXPECT_TRUE(file.Add("lm_head.weight", {256, 8}, 0).Check(tied).ok());
  file.Add("lm_head.weight", {256, 8}, 1);
  EXPECT_THAT(file.Check(tied).message(),
              AllOf(HasSubstr("spec.model.config.tieWeights false -> true"), HasSubstr("does not have: lm_head.weight"),
                    HasSubstr("give the file's own spec.model.config.tieWeights: false, or leave it unread by spec.model.init.skip: "
                              "['lm_head.*']")));
  EXPECT_TRUE(file.Check(Gpt2("nLayer: 1", "{skip: ['lm_head.*']}")).ok());
  EXPECT_TRUE(file.Check(untied).ok());
  EXPECT_TRUE(file.Check(untied, "transformer.").ok()) << "bare names of the body beside the head's";
}

}  // namespace
}  // namespace fusionllm::workload
