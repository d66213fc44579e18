#include "services/broker/model_memory.h"

#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "lib/job/parse.h"
#include "lib/workload/forward_graph.h"

namespace fusionllm::services {
namespace {

// A GPT-2 whose tables of tokens and positions, which one op reads, are by far its largest.
broker::MinModelMemory Of(const std::string& more) {
  const std::string text = absl::StrReplaceAll(
      R"(apiVersion: fusionllm.io/v1alpha1
kind: FusionJob
metadata: {name: small}
spec:
  model: {family: gpt2, config: {nLayer: 1, nHead: 2, nEmbd: 64, vocabSize: 1000, blockSize: 64}}
  data: {kind: text, path: text}
  training: {steps: 2, globalBatchSize: 8, sequenceLength: 64OPTIMIZER}
  strategy: {stages: 2REPLICAS}
)",
      {{"OPTIMIZER", more.starts_with("optimizer") ? ", " + more : ""}, {"REPLICAS", more.starts_with("replicas") ? ", " + more : ""}});
  const auto job = job::ParseFusionJob(text, "job.yaml");
  EXPECT_TRUE(job.ok()) << job.status();
  return MinModelMemoryOf(*workload::BuildForwardGraph(*job, ""), job->spec);
}

constexpr int64_t kTable = (1000 + 64) * 64 * 4;

TEST(ModelMemory, IsThatOfParametersGradientsAndOptimizerState) {
  const broker::MinModelMemory adamw = Of("");
  EXPECT_EQ(adamw.largest_bytes, 4 * kTable);
  EXPECT_FALSE(adamw.largest.empty());
  EXPECT_GT(adamw.all_bytes, 4 * kTable);
  EXPECT_LT(adamw.all_bytes, 8 * kTable);
  EXPECT_EQ(Of("optimizer: {name: sgd}").largest_bytes, 2 * kTable);
  EXPECT_EQ(Of("optimizer: {name: sgd, momentum: 0.9}").largest_bytes, 3 * kTable);
}

TEST(ModelMemory, IsHadByEachReplica) { EXPECT_EQ(Of("replicas: 2").all_bytes, 2 * Of("").all_bytes); }

}  // namespace
}  // namespace fusionllm::services
