// Whether the parameters that a file holds are those of a model: for a start (spec.model.init.from), a checkpoint that a run goes on from,
// and whatever else is read into a model. The one check of all who do so: before a run by fusionctl and its broker, and by executors.
//
// Blocks on the disk where a tied head is compared with the embedding; holds no state.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lib/checkpoint/reader.h"
#include "lib/job/differences.h"
#include "lib/job/fusion_job.h"
#include "lib/models/family.h"
#include "lib/opdag/graph.h"

namespace fusionllm::workload {

enum class ReadFor {
  kStart,       // training begins with it: what spec.model.init.skip matches begins fresh, counters may begin at 0
  kEvaluation,  // likewise, but nothing begins fresh: skip and ignore say only what of the file stays unread
  kResume,      // a run's own checkpoint: it has every parameter and no other
};

struct ParameterMismatch {
  std::vector<job::FieldDifference> fields;  // of families that know: what the shapes and names say, and what the job says instead
  std::vector<std::string> missing;          // the model's that are not stored
  std::vector<std::string> statistics;       // likewise, running means and variances of batch norms
  std::vector<std::string> unread;           // stored and no parameter of the model, which would compute something else without them
  const models::TiedHead* untied = nullptr;  // stored head, among `unread`, that is not the embedding to which the job ties it
  bool transposed = false;                   // all of `unlike` have the extents of a matrix the other way round
  std::vector<std::string> unlike;           // "fc.weight is [10, 512], not [5, 512]", stored first; with the dtypes where these differ
  std::map<std::string, std::vector<std::string>> other_types;  // of the right shape, and of a type that is not read: names by type
  std::vector<std::string> unmatched;                           // patterns of skip that match nothing
  std::vector<std::string> skip;                                // patterns of skip with which it would fit
  std::vector<std::string> passed_over;  // stored and no parameter of the model, unread too: no misfit, but worth a word
  bool empty() const {
    return missing.empty() && statistics.empty() && unread.empty() && unlike.empty() && other_types.empty() && unmatched.empty();
  }
};

// All that differs. For a start and an evaluation only these are unread: a layer whose number is beyond the model's, and a head that is
// not the embedding, to which the job ties it; further tensors are passed over. No word at all is lost about what programs of
// others keep beside parameters (IsBuffer), a head that is stored twice, and what skip or spec.model.init.ignore names. Files that lie in
// other sites count with the names that the manifest has for them. Errors: those of reading the head and the embedding.
absl::StatusOr<ParameterMismatch> CompareParameters(const job::FusionJob& job, const opdag::Graph& graph,
                                                    const checkpoint::CheckpointReader& stored, ReadFor reason);

// What is wrong, in one sentence that names `path`, fields and at most 20 tensors of a kind; empty: nothing.
std::string Describe(const ParameterMismatch& misfit, const std::string& path);

// Whether `stored` can start the job or be evaluated: the parameters, and where a checkpoint of ours says how many heads they have, the
// heads. Returns what is worth a word, a sentence each. Errors: InvalidArgument as Describe has it, with what would help.
absl::StatusOr<std::vector<std::string>> CheckStart(const job::FusionJob& job, const opdag::Graph& graph,
                                                    const checkpoint::CheckpointReader& stored, ReadFor reason = ReadFor::kStart);

// Whether a parameter of this type may be absent from a start: a count that a kernel keeps (num_batches_tracked), which begins at 0 as it
// does in a model that was never trained. Files from before PyTorch 0.4.1 have none.
bool MayBeginAtZero(const tensor::TensorType& type);
// Whether such a parameter does: where the file lacks it, or has it as something else, as programs that convert all of a model make it.
bool BeginsAtZero(const tensor::TensorType& type, const checkpoint::CheckpointReader& stored, const std::string& name);

}  // namespace fusionllm::workload
