// Replicas in different processes, by way of the host's memory and messages that somebody else carries (channel.h).
//
// AllReduce goes along a chain of the ranks and back. All tensors of a call are one row, which is never copied as a whole but travels in
// chunks: the first rank sends its numbers, each next one adds its own and sends the sum on, and the last one has the whole sum, which
// is passed back to the first. Chunks follow each other closely, so that sending, adding and receiving overlap. Each direction of a link
// between neighbours carries the bytes of the row once, uncompressed, and no other link carries any. Seconds, for size() = D:
//   2 (D - 1) latencies (of all hops, there and back) + bytes / rate of the slowest link + one chunk per hop, there and back
// (A ring would take 2 (D - 1) / D of the bytes over each link, but in one direction of D links.)
//
// Order of sums. Each element is added in the order of the chain: ((c0 + c1) + c2) ...; bf16 is rounded after each addition. The sum is
// made once and handed back, so all ranks have the same bits, and they depend neither on how a row is cut nor on how chunks travel.
// Where the chain has the ranks in order they are those of the communicator in one process (but for which of two NaNs it is).
//
// ReduceScatter goes along the same chain, and each rank's run comes back along it, not directly: who made the chain knows these links to
// be good, and chunks that come back, if only empty ones, tell the first rank when it may send more. AllGather and Broadcast send what
// there is from each who has it to each who wants it, all at once: they are for a few MiB.
//
// Every call begins with a call header to all others, in few bytes: what is called, a digest of types, counts and options. No call ends
// before all have greeted, so every rank knows who has not come, and those whose calls do not fit find out at once; but for the root of a
// Broadcast, which needs nothing of the others and hears their call headers in Wait, or when it calls next. A rank that ends tells all
// others why; one that leaves tells them, too, which is no concern of who needs nothing more of it.
//
// Of the channel it asks that Send does not wait for the receiver to take something, and works after Cancel; that Receive gives a chunk
// that is there whatever the deadline, so that one in the past asks for it; and that Cancel's status is not DeadlineExceeded. Chunks have
// calls from 0 on; call headers and close messages have negative rounds.
//
// A call returns when it is done; Wait has nothing else to wait for. After an error tensors may be summed in part. The timeout holds for
// each chunk: a long call over a slow link may last longer. Abort blocks as PointToPointChannel::Send does, to tell the others; so does the
// destructor.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "lib/collective/channel.h"
#include "lib/collective/communicator.h"
#include "lib/tensor/memory.h"

namespace fusionllm::collective {

// Of a chunk, at most but for a few bytes. In one process 64 KiB and 256 KiB sum three times as fast as 1 MiB and 4 MiB: a chunk that
// fits a core's cache is still there when it is added and sent on (chain_communicator_bench). Of those two, the one with fewer messages.
inline constexpr size_t kChunkBytes = size_t{256} << 10;
// How many chunks a rank may be ahead of the next one in the chain. A link is kept busy where it takes as long to send so many as a
// round trip and two chunks take: 8 MiB are 1 Gbit/s over 60 ms there and back. Of all chunks, (size() - 1) times as many and one may be
// under way at a time, wherever they wait: all with the first or the second rank, and with one further on in the chain as many fewer as
// it is behind the second.
inline constexpr int kChunksAhead = 32;
// So many may be in the memory of the rank at `place` of a chain: queued to leave, arrived, or in hand.
constexpr int MaxChunksAt(int place, int size) { return size < 2 ? 0 : (size - (place < 1 ? 1 : place)) * kChunksAhead + 1; }

struct ChainOptions {
  Timeouts timeout;  // to_join does not matter: there is no meeting
  // The same on all ranks:
  std::vector<int> chain;  // ranks in the order of the chain; empty: 0, 1, 2 ...
  size_t chunk_bytes = kChunkBytes;
};

// Exchanges nothing and does not block. `memory` and `channel`, which is this group's and epoch's alone, must outlive the communicator.
// Errors: InvalidArgument for a rank that cannot be, a chain that does not name each rank once, or chunks of nothing.
absl::StatusOr<std::unique_ptr<Communicator>> MakeChain(const GroupRank& group_rank, tensor::Memory& memory, PointToPointChannel& channel,
                                                        ChainOptions options = {});

}  // namespace fusionllm::collective
