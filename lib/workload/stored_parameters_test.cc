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
using ::testing::HasSubstr;
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

// A .safetensors file with the parameters of a job and whatever a test adds: element i of a tensor is `first` + i.
class StoredFile {
 public:
  explicit StoredFile(const job::FusionJob& job) {
    const auto graph = BuildForwardGraph(job, "");
    EXPECT_TRUE(graph.ok()) << graph.status();
    for (const opdag::Parameter& parameter : graph->parameters()) Add(parameter.name, parameter.type.shape, 0);
  }
  StoredFile& Add(const std::string& name, tensor::Shape shape, float first) {
    auto made = std::make_unique<tensor::Tensor>(tensor::TensorType{tensor::DType::kF32, std::move(shape)});
    for (int64_t i = 0; i < made->type().shape.elements(); ++i) made->f32()[i] = first + static_cast<float>(i);
    tensors_[name] = std::move(made);
    return *this;
  }
  StoredFile& Remove(const std::string& name) {
    tensors_.erase(name);
    return *this;
  }
  // Without `prefix`, in front of the names that have it.
  absl::Status Check(const job::FusionJob& job, const std::string& prefix = "") const {
    std::vector<checkpoint::NamedTensor> named;
    for (const auto& [name, tensor] : tensors_) {
      named.push_back({.name = name.starts_with(prefix) ? name.substr(prefix.size()) : name, .view = std::as_const(*tensor).view()});
    }
    const std::string path = folder_ / "start.safetensors";
    EXPECT_TRUE(checkpoint::WriteSafetensors(path, named).ok());
    const auto reader = checkpoint::CheckpointReader::Open(path);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return CheckStart(job, *BuildForwardGraph(job, ""), *reader);
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
                    HasSubstr("12 tensors that the model does not have: transformer.h.1.attn.c_attn.bias"), HasSubstr("and 9 more")));
  EXPECT_TRUE(StoredFile(Gpt2("nLayer: 2")).Check(Gpt2("nLayer: 1", "{ignore: ['transformer.h.1.*']}")).ok());
}

TEST(StoredParametersTest, SizesThatDifferAreNamedByTheirFields) {
  const absl::Status refused = StoredFile(Gpt2("nLayer: 1")).Check(Gpt2("nLayer: 2, blockSize: 6"));
  EXPECT_THAT(refused.message(), AllOf(HasSubstr("spec.model.config.nLayer 1 -> 2, spec.model.config.blockSize 4 -> 6"),
                                       HasSubstr("it has no tensor 'transformer.h.1.ln_1.weight' and 11 more that the model has"),
                                       HasSubstr("transformer.wpe.weight is [4, 8], not [6, 8]"), Not(HasSubstr("ignore"))));
}

TEST(StoredParametersTest, BuffersOfOtherProgramsAreNoParameters) {
  const job::FusionJob job = Gpt2("nLayer: 1");
  StoredFile file(job);
  file.Add("transformer.h.0.attn.bias", {1, 1, 4, 4}, 0).Add("transformer.h.0.attn.masked_bias", {}, -1e4F);
  EXPECT_TRUE(file.Check(job).ok());
  file.Add("transformer.h.0.attn.rotary", {2}, 0);
  EXPECT_THAT(file.Check(job).message(), HasSubstr("1 tensor that the model does not have: transformer.h.0.attn.rotary"));
}

TEST(StoredParametersTest, ATiedHeadMayBeStoredTwiceAndOfItsOwnItIsRefused) {
  const job::FusionJob tied = Gpt2("nLayer: 1"), untied = Gpt2("nLayer: 1, tieWeights: false");
  StoredFile file(tied);
  EXPECT_THAT(file.Check(untied).message(), HasSubstr("spec.model.config.tieWeights true -> false"));
  EXPECT_TRUE(file.Add("lm_head.weight", {256, 8}, 0).Check(tied).ok());
  file.Add("lm_head.weight", {256, 8}, 1);
  EXPECT_THAT(file.Check(tied).message(), AllOf(HasSubstr("spec.model.config.tieWeights false -> true"), HasSubstr("lm_head.weight")));
  EXPECT_TRUE(file.Check(untied).ok());
  EXPECT_TRUE(file.Check(untied, "transformer.").ok()) << "bare names of the body beside the head's";
}

}  // namespace
}  // namespace fusionllm::workload
