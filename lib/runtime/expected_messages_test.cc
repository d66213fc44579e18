// Whole runs hold ExpectedMessages to what stages send (testing/local_pipeline.h); here is what is refused.
#include "lib/runtime/expected_messages.h"

#include <memory>
#include <utility>

#include "gtest/gtest.h"
#include "lib/runtime/evaluation_pass.h"
#include "lib/runtime/testing/small_networks.h"

namespace fusionllm::runtime {
namespace {

constexpr int kStages = 3, kMicroBatches = 4, kReplicas = 2, kWindow = 8;
constexpr int64_t kFirstStep = 5;

// Stage 1 of three, whose peers are the stages at places 0 to 2 and its replicas at 3 and 4; itself at 1 and 3.
class ExpectedMessagesTest : public ::testing::Test {
 protected:
  explicit ExpectedMessagesTest(int stage = 1) : stage_(stage), training_(testing::SmallGpt2(/*tied=*/true)) {
    placement_ = autodiff::AssignStages(training_, testing::ContiguousStages(training_, kStages));
    program_ = *BuildStageProgram(training_, placement_, stage_, kStages, Recompute::kNone);
    inbox_.Expect(std::make_unique<ExpectedMessages>(training_, placement_, program_, kMicroBatches, kReplicas, kWindow), kFirstStep);
  }
  absl::StatusCode Code(int place, const MessageKey& key, uint64_t bytes = 8) const {
    return inbox_.CheckDelivery(place, key, bytes).code();
  }
  void DeliverAndTake(const MessageKey& key) {
    inbox_.Deliver(key, Payload(8));
    EXPECT_TRUE(inbox_.Take(key).ok());
  }
  MessageKey Activation(int64_t step = kFirstStep, int micro_batch = 0) const {
    return {.step = step, .kind = MessageKind::kValue, .micro_batch = micro_batch, .id = program_.forward.receives.front().value};
  }

  const int stage_;
  const autodiff::TrainingGraph training_;
  std::vector<int> placement_;
  StageProgram program_;
  Inbox inbox_;
};

constexpr auto kOk = absl::StatusCode::kOk, kDenied = absl::StatusCode::kPermissionDenied, kRange = absl::StatusCode::kOutOfRange,
               kKnown = absl::StatusCode::kAlreadyExists, kExhausted = absl::StatusCode::kResourceExhausted;

TEST_F(ExpectedMessagesTest, ActivationsAndGradientsComeFromTheOtherEndOfTheirEdge) {
  EXPECT_EQ(Code(0, Activation()), kOk);
  for (const int place : {1, 2, 3, 4}) EXPECT_EQ(Code(place, Activation()), kDenied) << place;
  MessageKey gradient = Activation();
  gradient.id = program_.backward.receives.front().value;
  EXPECT_EQ(Code(2, gradient), kOk);
  EXPECT_EQ(Code(0, gradient), kDenied);
  MessageKey unknown = Activation();
  unknown.id = program_.forward.ops.front().op == 0 ? 1 << 20 : -1;
  EXPECT_EQ(Code(0, unknown), kDenied);
}

TEST_F(ExpectedMessagesTest, DecisionsComeFromStageZeroAndReportsGoThere) {
  const MessageKey decision{.step = kFirstStep, .kind = MessageKind::kDecision};
  EXPECT_EQ(Code(0, decision), kOk);
  EXPECT_EQ(Code(2, decision), kDenied);
  EXPECT_EQ(Code(4, decision), kDenied);
  EXPECT_EQ(Code(2, {.step = kFirstStep, .kind = MessageKind::kReport, .id = 2}), kDenied);
}

class ExpectedReportsTest : public ExpectedMessagesTest {
 protected:
  ExpectedReportsTest() : ExpectedMessagesTest(0) {}
};
TEST_F(ExpectedReportsTest, EachStageReportsForItselfAlone) {
  const auto report = [](int stage) { return MessageKey{.step = kFirstStep, .kind = MessageKind::kReport, .id = stage}; };
  for (const int stage : {1, 2}) EXPECT_EQ(Code(stage, report(stage)), kOk);
  EXPECT_EQ(Code(1, report(2)), kDenied);
  EXPECT_EQ(Code(2, report(0)), kDenied);
}
TEST_F(ExpectedReportsTest, GradientsOfASharedParameterComeFromTheStageOfTheirUse) {
  int others = 0;
  for (int use = 0; use < static_cast<int>(training_.uses.size()); ++use) {
    const int from = placement_[static_cast<size_t>(training_.uses[static_cast<size_t>(use)].op)];
    const bool shared = !program_.sharers[training_.uses[static_cast<size_t>(use)].parameter].empty();
    const MessageKey key{.step = kFirstStep, .kind = MessageKind::kPerUseGradient, .id = use};
    for (const int place : {1, 2}) EXPECT_EQ(Code(place, key), shared && place == from ? kOk : kDenied) << use << " from " << place;
    others += shared && from != 0 ? 1 : 0;
  }
  EXPECT_GT(others, 0);
}
TEST_F(ExpectedReportsTest, WhereAnEvaluationIsComesFromTheStageOfTheLoss) {
  for (const int32_t id : {kEvaluatedAll, kEvaluatedWindow}) {
    const MessageKey key{.step = kFirstStep, .kind = MessageKind::kEvaluated, .id = id};
    EXPECT_EQ(Code(2, key), kOk);
    EXPECT_EQ(Code(1, key), kDenied);
  }
}

TEST_F(ExpectedMessagesTest, ChunksComeFromTheReplicaTheyName) {
  const auto chunk = [](int part, int rank) { return MessageKey{.step = 0, .kind = MessageKind::kReplica, .id = part * kReplicas + rank}; };
  EXPECT_EQ(Code(4, chunk(7, 1)), kOk);
  EXPECT_EQ(Code(4, chunk(7, 0)), kDenied);
  for (const int stage : {0, 2}) EXPECT_EQ(Code(stage, chunk(7, 1)), kDenied);
  EXPECT_EQ(Code(4, {.kind = MessageKind::kReplica, .id = -1}), kDenied);
}

TEST_F(ExpectedMessagesTest, OnlyThisStepAndTheNextOneAreTaken) {
  EXPECT_EQ(Code(0, Activation(kFirstStep - 1)), kKnown);
  EXPECT_EQ(Code(0, Activation(kFirstStep + 1)), kOk);
  EXPECT_EQ(Code(0, Activation(kFirstStep + 2)), kRange);
  inbox_.Deliver(Activation(kFirstStep, 3), Payload(8));  // and stays, as one that comes again after it was taken
  EXPECT_EQ(Code(0, Activation(kFirstStep, 3)), kKnown);
  DeliverAndTake(Activation(kFirstStep + 1));
  EXPECT_EQ(Code(0, Activation(kFirstStep)), kKnown);
  EXPECT_EQ(Code(0, Activation(kFirstStep + 2)), kOk);
  const MessageKey left[] = {Activation(kFirstStep, 3)};
  EXPECT_FALSE(inbox_.HasAll(left)) << "kept beyond its step";
}

TEST_F(ExpectedMessagesTest, MicroBatchesThatTheStepHasNotAreRefused) {
  EXPECT_EQ(Code(0, Activation(kFirstStep, kMicroBatches - 1)), kOk);
  EXPECT_EQ(Code(0, Activation(kFirstStep, kMicroBatches)), kRange);
  EXPECT_EQ(Code(0, Activation(kFirstStep, -1)), kRange);
  EXPECT_EQ(Code(0, {.step = kFirstStep, .kind = MessageKind::kDecision, .micro_batch = 1}), kRange);
}

TEST_F(ExpectedMessagesTest, MessagesLargerThanAnyCodecMakesThemAreRefused) {
  const uint64_t values = static_cast<uint64_t>(training_.graph.value(Activation().id).type.elements());
  EXPECT_EQ(Code(0, Activation(), 8 * values), kOk);
  EXPECT_EQ(Code(0, Activation(), 64 * values + 4097), kRange);
  EXPECT_EQ(Code(0, {.step = kFirstStep, .kind = MessageKind::kDecision}, 1 << 20), kRange);
}

TEST_F(ExpectedMessagesTest, EvaluationsRunNoMoreThanTwoWindowsAhead) {
  const auto pass = [&](int64_t step, int micro_batch) {
    MessageKey key = Activation(step, micro_batch);
    key.kind = MessageKind::kEvaluation;
    return key;
  };
  EXPECT_EQ(Code(0, pass(kFirstStep, 2 * kWindow - 1)), kOk);
  EXPECT_EQ(Code(0, pass(kFirstStep, 2 * kWindow)), kRange);
  DeliverAndTake(pass(kFirstStep, 0));
  DeliverAndTake(pass(kFirstStep, 1));
  EXPECT_EQ(Code(0, pass(kFirstStep, 2 * kWindow + 1)), kOk);
  EXPECT_EQ(Code(0, pass(kFirstStep, 2 * kWindow + 2)), kRange);
  EXPECT_EQ(Code(0, pass(kFirstStep + 1, 2 * kWindow)), kRange) << "another evaluation begins anew";
}

TEST_F(ExpectedMessagesTest, HeldReplicaChunkBytesAreLimited) {
  const ExpectedMessages expected(training_, placement_, program_, kMicroBatches, kReplicas, kWindow);
  const auto chunk = [](int part, int rank) { return MessageKey{.kind = MessageKind::kReplica, .id = part * kReplicas + rank}; };
  const uint64_t half = expected.chunk_bytes_max() / 2;
  EXPECT_EQ(Code(4, chunk(0, 1), 3 * half), kExhausted);
  ASSERT_EQ(Code(4, chunk(0, 1), half), kOk);
  inbox_.Deliver(chunk(0, 1), Payload(half));
  EXPECT_EQ(Code(4, chunk(1, 1), half), kExhausted);
  EXPECT_TRUE(inbox_.Take(chunk(0, 1)).ok());
  EXPECT_EQ(Code(4, chunk(1, 1), half), kOk) << "it was taken";
}

TEST(EvaluationWindowTest, HasAllStagesAtWorkAndIsTheSameOnAll) {
  const autodiff::TrainingGraph training = testing::SmallGpt2(/*tied=*/false);
  for (const int stages : {1, 2, 4}) {
    const std::vector<int> placement = autodiff::AssignStages(training, testing::ContiguousStages(training, stages));
    EXPECT_GE(EvaluationWindow(training, placement, stages), stages);
  }
}

}  // namespace
}  // namespace fusionllm::runtime
