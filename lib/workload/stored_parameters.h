// Whether the parameters that a file holds are those of a model: for a start (spec.model.init.from), a checkpoint that a run goes on from,
// and whatever else is read into a model.
//
// Blocks on the disk where a tied head is compared with the embedding; holds no state.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/differences.h"
#include "lib/job/fusion_job.h"
#include "lib/opdag/graph.h"

namespace fusionllm::workload {

struct ParameterMisfit {
  std::vector<job::FieldDifference> fields;  // of gpt2: what the shapes and names say, and what the job says instead
  std::vector<std::string> missing;          // the model's that are not stored
  std::vector<std::string> unread;           // stored, and no parameter of the model
  std::vector<std::string> shapes;           // "fc.weight is [10, 512], not [5, 512]", stored first
  bool empty() const { return missing.empty() && unread.empty() && shapes.empty(); }
};

// Unread are not what programs of others keep beside parameters: the masks of GPT-2's attention (attn.bias, attn.masked_bias),
// num_batches_tracked of batch norms, and a head that is stored twice; nor what spec.model.init.ignore names. A lm_head.weight that is not
// the embedding, to which the job ties it, is unread. Files that lie in other sites count with the names that the manifest has for them.
// Errors: those of reading the head and the embedding.
absl::StatusOr<ParameterMisfit> CompareParameters(const job::FusionJob& job, const opdag::Graph& graph,
                                                  const checkpoint::CheckpointReader& stored);

// What is wrong, in one sentence that names `path`, fields and tensors; empty: nothing.
std::string Describe(const ParameterMisfit& misfit, const std::string& path);

// Whether `stored` can start the job: the parameters, and where a checkpoint of ours says how many heads they have, the heads.
// Errors: InvalidArgument as Describe has it.
absl::Status CheckStart(const job::FusionJob& job, const opdag::Graph& graph, const checkpoint::CheckpointReader& stored);

}  // namespace fusionllm::workload
