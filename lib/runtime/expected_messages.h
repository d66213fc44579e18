// Which messages a stage takes from its peers in one plan epoch: who may send what, and how large it may be.
//
// A transport proves who sent a message; what the message is stands in its key, which anybody can write. So a key is believed only of the
// peer at the other end of that edge. Immutable, so that any thread may ask.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/status/status.h"
#include "lib/autodiff/training_graph.h"
#include "lib/runtime/message.h"
#include "lib/runtime/stage_program.h"

namespace fusionllm::runtime {

class ExpectedMessages {
 public:
  // `micro_batches`: of this replica in a step. `evaluation_window`: EvaluationWindow's, or what the stages were given instead. Peers are
  // known by places: those of the stages first, then, where there are several, those of the replicas of this stage.
  ExpectedMessages(const autodiff::TrainingGraph& training, const std::vector<int>& stage_of_op, const StageProgram& program,
                   int micro_batches, int replicas, int evaluation_window);

  // OK, or PermissionDenied: the peer at `place` has no such message for this stage; OutOfRange: no micro-batch has this number, or it is
  // larger than any codec makes it. `bytes`: of the payload. Steps are the inbox's matter.
  absl::Status Check(int place, const MessageKey& key, uint64_t bytes) const;

  int evaluation_window() const { return evaluation_window_; }
  // Which replica's chunk it is (services' ReplicaChannel names them so), and the most bytes of them that are to be held for one replica.
  int SenderOf(const MessageKey& chunk) const { return chunk.id % replicas_; }
  uint64_t chunk_bytes_max() const { return chunk_bytes_max_; }

 private:
  struct Message {
    MessageKind kind;
    int32_t id;
    int place;
    auto operator<=>(const Message&) const = default;
  };
  void Add(MessageKind kind, int32_t id, int place, uint64_t bytes_max) { bytes_max_[{kind, id, place}] = bytes_max; }

  int stages_, replicas_, micro_batches_, evaluation_window_;
  uint64_t chunk_bytes_max_ = 0;
  std::map<Message, uint64_t> bytes_max_;  // all but chunks
};

}  // namespace fusionllm::runtime
