// The replicas of one stage, and the sums that they make together: of gradients, after a step's backward passes.
//
// A communicator is one rank's end of a group. It belongs to one plan epoch; when the epoch ends it is thrown away, and the next epoch's
// ranks meet again. Every rank makes the same calls, in the same order, with tensors of the same types: which rank calls something
// else is found out by groups in one process (local_communicator.h) and along a chain (chain_communicator.h), and by NCCL
// (nccl/nccl_communicator.h) only where counts are no part of it: there the ranks hang until their timeout ends.
//
// Tensors live in the memory that the communicator was made for. Where that is a device's, a call returns when the work has been put into
// its stream, after the kernels that were asked for before and ahead of those that are asked for next; Wait says how it ended. Each call
// takes many tensors, which travel together: one call for all gradients of a stage costs few rounds, one for each costs as many as there
// are.
//
// Order of sums. After AllReduce every rank has the same bits. In one process they are added in the order of ranks, and along a chain in
// its order, so that the same values give the same bits always. NCCL adds along a ring or a tree, which it chooses by topology, sizes and
// its version: the same bits in each run on the same machines, and others elsewhere, unless NCCL_ALGO and NCCL_PROTO fix them. bf16 is
// rounded after each addition, in any (but where NVSwitch adds, which does so in fp32 and rounds once).
//
// After an error a group is of no more use: each later call answers with the first one. One rank's error ends the others at once in one
// process, and as soon as its chunk comes along a chain; NCCL's others hear of it by a broken connection, when they are aborted, or when
// their timeout ends. One thread makes the calls of a rank; Abort may come from any.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "lib/tensor/memory.h"
#include "lib/tensor/tensor.h"

namespace fusionllm::collective {

// Who takes part in what.
struct GroupRank {
  std::string group;   // of the run: "stage-2"
  uint32_t epoch = 0;  // the broker's number of the plan
  int rank = 0;        // the replica
  int size = 1;        // replicas
  // "replica 1 of 4 of group 'stage-2' in plan epoch 7"
  std::string ToString() const;
};

// How long a rank waits for the others before it takes them for lost; finite. In a call, and in Wait: longer than the slowest replica is
// ever behind the fastest, an evaluation of replica 0 included.
struct Timeouts {
  absl::Duration to_join = absl::Minutes(2);
  absl::Duration per_call = absl::Minutes(10);
};

// What a rank brings and where it takes the result.
struct Exchange {
  tensor::ConstTensorView from;
  tensor::TensorView to;  // shares no memory with `from`
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  const GroupRank& group_rank() const { return group_rank_; }
  int rank() const { return group_rank_.rank; }
  int size() const { return group_rank_.size; }
  uint32_t epoch() const { return group_rank_.epoch; }
  // Where its tensors must live.
  virtual tensor::Memory& memory() const = 0;

  // Replaces each tensor, f32 or bf16, by the sum of all ranks'.
  virtual absl::Status AllReduce(std::span<const tensor::TensorView> tensors) = 0;
  // Adds as AllReduce; of each sum, cut into size() equal runs of elements, rank r takes the r-th. from: size() times the elements of to.
  virtual absl::Status ReduceScatter(std::span<const Exchange> exchanges) = 0;
  // Each rank's `from`, of any type, one after the other by rank. to: size() times the elements of from.
  virtual absl::Status AllGather(std::span<const Exchange> exchanges) = 0;
  // Replaces each tensor, of any type, by rank `root`'s.
  virtual absl::Status Broadcast(std::span<const tensor::TensorView> tensors, int root) = 0;
  // All of them. Errors: InvalidArgument for what this rank gives them, which leaves the group as it was; Internal for what others call
  // at the same time, who should call the same; Unavailable when a rank is lost, or does not come in time, naming group and epoch; those
  // of a rank's memory; Abort's.

  // Blocks until what was called has been done. Errors: as above.
  virtual absl::Status Wait() = 0;

  // From any thread: ends what this rank waits for, in this communicator or for its device, and all that it calls later, with `why`
  // (Cancelled or Unavailable, saying why). The first call decides; none changes an error that was there before.
  virtual void Abort(absl::Status why) = 0;

 protected:
  explicit Communicator(GroupRank group_rank) : group_rank_(std::move(group_rank)) {}

 private:
  const GroupRank group_rank_;
};

// InvalidArgument for a rank or size that cannot be.
absl::Status CheckGroupRank(const GroupRank& group_rank);

// What the calls ask of their tensors, for implementations. Errors: InvalidArgument, naming the call and the tensor by its place.
absl::Status CheckSums(absl::string_view call, std::span<const tensor::TensorView> tensors);
absl::Status CheckReduceScatter(std::span<const Exchange> exchanges, int size);
absl::Status CheckAllGather(std::span<const Exchange> exchanges, int size);
absl::Status CheckRoot(int root, int size);

}  // namespace fusionllm::collective
