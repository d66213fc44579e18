// Outgoing and Incoming, the two halves of a session, joined by hand: no threads, no clock.
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "lib/transport/incoming.h"
#include "lib/transport/outgoing.h"

namespace fusionllm::transport {
namespace {

constexpr OutgoingLimits kLimits{.queue_bytes_max = 1000, .unacked_bytes_max = 500, .chunk_bytes = 100};

MessageHeader Header(int64_t step, Priority priority = Priority::kTensor, uint32_t epoch = 1) {
  MessageHeader header;
  header.step = step;
  header.priority = priority;
  header.epoch = epoch;
  return header;
}

Payload Filled(size_t n, char c = 'x') { return Payload::Of(std::string(n, c)); }

TEST(Session, TheQueueTakesOneMessageOfAnySizeAndThenItsLimit) {
  Outgoing out(kLimits);
  EXPECT_TRUE(out.HasRoom(Header(0), 5000));
  out.Push(Header(0), Filled(600));
  EXPECT_TRUE(out.HasRoom(Header(1), 400));
  EXPECT_FALSE(out.HasRoom(Header(1), 401));
  EXPECT_TRUE(out.HasRoom(Header(1, Priority::kControl), 401));
}

TEST(Session, TheWindowStopsBulkButNotControl) {
  Outgoing out(kLimits);
  out.Push(Header(0), Filled(5000));
  int frames = 0;
  while (out.Next(0).has_value()) ++frames;
  EXPECT_EQ(frames, 3);  // 180 bytes each, started while below 500
  out.Push(Header(1, Priority::kControl), Filled(10));
  EXPECT_EQ(out.Next(0)->message.step, 1);
  EXPECT_FALSE(out.HasFrame());
  ASSERT_TRUE(out.Acknowledge(2, 1).ok());
  EXPECT_EQ(out.Next(1)->offset, 300u);
}

TEST(Session, AnAcknowledgementOfUnsentFramesIsRefused) {
  Outgoing out(kLimits);
  out.Push(Header(0), Filled(10));
  out.Next(0);
  EXPECT_EQ(out.Acknowledge(2, 0).code(), absl::StatusCode::kDataLoss);
}

TEST(Session, APeerThatLostAcknowledgedFramesCannotResume) {
  Outgoing out(kLimits);
  out.Push(Header(0), Filled(10));
  out.Next(0);
  ASSERT_TRUE(out.Acknowledge(1, 0).ok());
  EXPECT_EQ(out.Resume(0, 0).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(out.Resume(1, 0).ok());
}

TEST(Session, TheLastFrameOfAQueueAsksForAnAcknowledgement) {
  Outgoing out({.queue_bytes_max = 1u << 20, .unacked_bytes_max = 1u << 20, .chunk_bytes = 100});
  out.Push(Header(0), Filled(250));
  EXPECT_FALSE(out.Next(0)->ack_requested);
  EXPECT_FALSE(out.Next(0)->ack_requested);
  EXPECT_TRUE(out.Next(0)->ack_requested);
}

TEST(Session, CancelledQueueStillRequestsAcknowledgement) {
  Outgoing out({.queue_bytes_max = 1u << 20, .unacked_bytes_max = 1u << 20, .chunk_bytes = 100});
  out.Push(Header(0), Filled(250));
  out.Next(0);
  out.CancelEpoch(2);
  const std::optional<Frame> frame = out.Next(0);
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->type, FrameType::kSkip);
  EXPECT_TRUE(frame->ack_requested);
  ASSERT_TRUE(out.Acknowledge(2, 0).ok());
  EXPECT_TRUE(out.drained());
}

TEST(Session, TheBandwidthEstimateIsTheRateOfAcknowledgedBytes) {
  Outgoing out({.queue_bytes_max = 100u << 20, .unacked_bytes_max = 8u << 20, .chunk_bytes = 1u << 20});
  out.Push(Header(0), Payload::Of(tensor::Buffer(64u << 20)));
  double now = 0;
  uint64_t acknowledged = 0;
  while (!out.drained()) {
    while (out.Next(now).has_value()) {
    }
    now += 0.1;  // one frame of 1 MiB + 80 bytes each 100 ms
    ASSERT_TRUE(out.Acknowledge(++acknowledged, now).ok());
  }
  EXPECT_NEAR(out.bandwidth_bytes_per_s(), ((1 << 20) + 80) / 0.1, 1e5);
}

TEST(Session, AGapAForeignChunkOrAnEmptyChunkIsRefused) {
  Outgoing out(kLimits);
  out.Push(Header(0), Filled(250));
  Frame first = *out.Next(0), second = *out.Next(0);
  Seal(first);
  Seal(second);
  EXPECT_EQ(Incoming().Take(second, 0).status().code(), absl::StatusCode::kDataLoss);
  Incoming in;
  ASSERT_TRUE(in.Take(first, 0).ok());
  EXPECT_EQ(in.Take(first, 0).status().code(), absl::StatusCode::kDataLoss);
  for (const int mischief : {0, 1, 2}) {
    Incoming receiver;
    ASSERT_TRUE(receiver.Take(first, 0).ok());
    Frame bad = second;
    if (mischief == 0) bad.offset += 1;
    if (mischief == 1) bad.message.step += 1;
    if (mischief == 2) bad.payload.clear();
    Seal(bad);
    EXPECT_EQ(receiver.Take(bad, 0).status().code(), absl::StatusCode::kDataLoss) << mischief;
  }
}

TEST(Session, AMessageThatIsNotAdmittedIsPassedOverAndTheNextOneArrives) {
  Outgoing out(kLimits);
  out.Push(Header(1), Filled(150));
  out.Push(Header(2), Filled(150));
  std::vector<std::pair<int64_t, uint64_t>> asked;
  Incoming in(kMessageBytesMax, [&](const MessageHeader& header, uint64_t bytes) {
    asked.emplace_back(header.step, bytes);
    return header.step == 2;
  });
  std::vector<int64_t> arrived;
  while (std::optional<Frame> frame = out.Next(0)) {
    Seal(*frame);
    const auto message = in.Take(*frame, 0);
    ASSERT_TRUE(message.ok()) << message.status();
    if (!message->has_value()) continue;
    arrived.push_back((*message)->first.step);
    EXPECT_EQ((*message)->second.size(), 150u);
  }
  EXPECT_EQ(arrived, (std::vector<int64_t>{2}));
  EXPECT_EQ(asked, (std::vector<std::pair<int64_t, uint64_t>>{{1, 150}, {2, 150}})) << "once each, when they begin";
}

TEST(Session, RandomCutsAndCancellationsDeliverOnceInOrder) {
  constexpr uint32_t kSeed = 20240;
  std::mt19937 draw(kSeed);
  for (int round = 0; round < 200; ++round) {
    Outgoing out(kLimits);
    Incoming in;
    uint32_t epoch = 1;
    int64_t step = 0;
    std::vector<Frame> wire;  // written on the present connection, not yet read
    std::array<std::vector<int64_t>, kPriorityCount> sent, arrived;
    const auto take = [&](const Frame& frame) {
      auto message = in.Take(frame, 0);
      ASSERT_TRUE(message.ok()) << message.status();
      if (!message->has_value()) return;
      EXPECT_EQ((*message)->second.size(), static_cast<size_t>((*message)->first.step % 7 * 60));
      arrived[static_cast<size_t>((*message)->first.priority)].push_back((*message)->first.step);
    };
    for (int action = 0; action < 300; ++action) {
      switch (draw() % 12) {
        case 0:
        case 1:
        case 2: {
          const auto priority = static_cast<Priority>(draw() % kPriorityCount);
          out.Push(Header(step, priority, epoch), Filled(static_cast<size_t>(step % 7 * 60)));
          sent[static_cast<size_t>(priority)].push_back(step++);
          break;
        }
        case 3:  // the connection breaks; what was on it is lost
          wire.clear();
          ASSERT_TRUE(out.Resume(in.next_sequence(), action).ok());
          break;
        case 4:
          if (draw() % 4 == 0) out.CancelEpoch(++epoch);
          break;
        case 5:
          ASSERT_TRUE(out.Acknowledge(in.next_sequence(), action).ok());
          break;
        default:
          if (draw() % 2 == 0) {
            if (auto frame = out.Next(action)) {
              Seal(*frame);
              wire.push_back(*frame);
            }
          } else if (!wire.empty()) {
            take(wire.front());
            wire.erase(wire.begin());
          }
      }
    }
    while (!out.drained()) {
      for (const Frame& frame : wire) take(frame);
      wire.clear();
      while (auto frame = out.Next(1000)) {
        Seal(*frame);
        take(*frame);
      }
      ASSERT_TRUE(out.Acknowledge(in.next_sequence(), 1000).ok());
    }
    for (int p = 0; p < kPriorityCount; ++p) {
      EXPECT_TRUE(std::is_sorted(arrived[p].begin(), arrived[p].end()));
      EXPECT_EQ(std::adjacent_find(arrived[p].begin(), arrived[p].end()), arrived[p].end());
      EXPECT_TRUE(std::includes(sent[p].begin(), sent[p].end(), arrived[p].begin(), arrived[p].end()));
    }
    EXPECT_EQ(arrived[0], sent[0]);  // control is never cancelled
  }
}

}  // namespace
}  // namespace fusionllm::transport
