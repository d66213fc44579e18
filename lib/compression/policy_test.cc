#include "lib/compression/policy.h"

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fusionllm::compression {
namespace {

using ::testing::HasSubstr;

auto EachOfThree(const std::string& text) { return ::testing::ElementsAre(text, text, text); }

constexpr int64_t kMessageElements = 1 << 20;  // 4 MiB a micro-batch and direction

// A link whose dense messages take `times` the target of one second.
LinkLoad LinkOf(double times) {
  const double bandwidth = 4.0 * kMessageElements / times;
  return {.name = "paris-0 -> tokyo-0",
          .tensors = {{kMessageElements}},
          .forward_bandwidth_bytes_per_s = bandwidth,
          .backward_bandwidth_bytes_per_s = bandwidth};
}

LinkChoice Choose(const Policy& policy, const LinkLoad& link, double target_s = 1) {
  const auto choices = ChooseCodecs(policy, std::span(&link, 1), target_s);
  EXPECT_TRUE(choices.ok()) << choices.status();
  return choices.ok() ? choices->front() : LinkChoice();
}

const Policy kAuto = {.kind = PolicyKind::kAdaTopK};

TEST(ChooseCodecsTest, LosslessOnlyLinksStayExactUnderEveryPolicy) {
  const LinkLoad labels{
      .name = "labels", .lossless_bytes = 1 << 20, .forward_bandwidth_bytes_per_s = 1, .backward_bandwidth_bytes_per_s = 1};
  LinkLoad activations = labels;
  activations.tensors = {{.elements = 1 << 20}};
  for (const PolicyKind kind : {PolicyKind::kUniform, PolicyKind::kAdaTopK}) {
    for (const std::optional<CodecKind> codec :
         {std::optional<CodecKind>(), std::optional(CodecKind::kInt8), std::optional(CodecKind::kTopK)}) {
      const auto choices = ChooseCodecs({.kind = kind, .codec = codec}, std::vector<LinkLoad>{labels, activations}, 1);
      ASSERT_TRUE(choices.ok()) << choices.status();
      EXPECT_EQ((*choices)[0].spec, Exact());
      EXPECT_EQ((*choices)[0].reason_code, "NothingToCompress");
      EXPECT_EQ((*choices)[0].forward_bytes, labels.lossless_bytes);
      EXPECT_NE((*choices)[1].spec.kind, CodecKind::kExact);
    }
  }
}

TEST(AdaTopKRatioTest, IsJustWhatHidesTheLink) {
  EXPECT_DOUBLE_EQ(AdaTopKRatio(1000, 10, 20, 100), 5);
  EXPECT_DOUBLE_EQ(AdaTopKRatio(1000, 1000, 20, 100), 1);
  EXPECT_DOUBLE_EQ(AdaTopKRatio(1000000, 1, 1, 100), 100);
}

TEST(CompressionLevelTest, RaisesOneLevelAtATimeAsTheLinkSlows) {
  const std::pair<double, const char*> rungs[] = {{0.5, "fp32"}, {0.99, "fp32"}, {1.5, "fp16"}, {1.99, "fp16"}, {3, "int8"}, {3.8, "int8"}};
  for (const auto& [times, codec] : rungs) {
    const LinkChoice choice = Choose(kAuto, LinkOf(times));
    EXPECT_EQ(ToString(choice.spec), codec) << times;
    EXPECT_TRUE(choice.hidden) << times;
  }
  // Gradients of int4 travel as int8, so int4 hides nothing more on a link that is as slow backward as forward.
  EXPECT_EQ(Choose(kAuto, LinkOf(5)).spec.kind, CodecKind::kTopK);
}

TEST(CompressionLevelTest, TakesInt4WhenOnlyTheForwardLinkIsSlow) {
  LinkLoad link = LinkOf(6);
  link.backward_bandwidth_bytes_per_s *= 10;
  EXPECT_EQ(ToString(Choose(kAuto, link).spec), "int4");
}

TEST(CompressionLevelTest, KeptValuesTravelAsInt4WhereNothingButInnerResidualsCrosses) {
  LinkLoad link = LinkOf(20);
  link.tensors[0].kind = opdag::ActivationKind::kInnerResidual;
  EXPECT_EQ(Choose(kAuto, link).spec.top_k_values, ValueKind::kInt4);
  Policy halves = kAuto, named = {.kind = PolicyKind::kUniform, .codec = CodecKind::kTopK, .max_ratio = 20};
  halves.top_k_values = ValueKind::kFp16;
  EXPECT_EQ(Choose(halves, link).spec.top_k_values, ValueKind::kFp16);
  EXPECT_EQ(ToString(Choose(named, link).spec), "topk@20:int8");
  link.tensors.push_back({.elements = kMessageElements / 8, .kind = opdag::ActivationKind::kAttentionInput});
  EXPECT_EQ(Choose(kAuto, link).spec.top_k_values, ValueKind::kInt8);
}

TEST(CompressionLevelTest, EndsAtItsLimit) {
  Policy policy = kAuto;
  const std::pair<CodecKind, const char*> limits[] = {
      {CodecKind::kExact, "fp32"}, {CodecKind::kFp16, "fp16"}, {CodecKind::kInt8, "int8"}, {CodecKind::kInt4, "int4"}};
  LinkLoad link = LinkOf(50);
  link.backward_bandwidth_bytes_per_s *= 100;
  for (const auto& [limit, codec] : limits) {
    policy.limit = limit;
    EXPECT_EQ(ToString(Choose(policy, link).spec), codec);
    EXPECT_EQ(Choose(policy, link).reason_code, "CodecLimit");
    EXPECT_EQ(ToString(Choose(policy, LinkOf(0.5)).spec), "fp32") << "a link that needs nothing gets nothing";
  }
  policy.limit = CodecKind::kTopK;
  EXPECT_EQ(Choose(policy, link).spec, Choose(kAuto, link).spec);
}

TEST(CompressionLevelTest, TakesNoGreaterTopKRatioThanItNeeds) {
  for (double times : {5.0, 8.0, 20.0, 60.0, 130.0}) {
    const LinkLoad link = LinkOf(times);
    const LinkChoice choice = Choose(kAuto, link);
    ASSERT_EQ(choice.spec.kind, CodecKind::kTopK);
    EXPECT_TRUE(choice.hidden) << choice.reason;
    CodecSpec milder = choice.spec;
    milder.ratio *= 0.98;
    EXPECT_FALSE(milder.ratio >= 1 && EstimateLink(milder, link, 1).hidden) << ToString(choice.spec) << " at " << times;
  }
}

TEST(CompressionLevelTest, StopsAtTheRatioOfTheJobAndSaysSo) {
  const LinkChoice choice = Choose(kAuto, LinkOf(100000));
  EXPECT_EQ(ToString(choice.spec), "topk@100:int8");
  EXPECT_FALSE(choice.hidden);
  EXPECT_EQ(choice.reason_code, "RatioLimit");
  EXPECT_THAT(choice.reason, HasSubstr("does not hide it"));
  EXPECT_THAT(choice.reason, HasSubstr("trained bottleneck at this cut would do better"));
  EXPECT_TRUE(choice.bottleneck_layer_is_better);
  EXPECT_NEAR(choice.needed_ratio, 100000, 10);
}

TEST(CompressionLevelTest, TheRatioOfTheJobBoundsTopKAlone) {
  Policy policy = kAuto;
  for (const double ratio : {1.0, 2.0, 3.0}) {
    policy.max_ratio = ratio;
    const LinkChoice choice = Choose(policy, LinkOf(3));
    EXPECT_EQ(ToString(choice.spec), "int8") << "costs no loss, where top-k would, at ratio " << ratio;
    EXPECT_TRUE(choice.hidden);
    EXPECT_NE(Choose(policy, LinkOf(1000)).spec.kind, CodecKind::kExact) << ratio;
  }
  policy.max_ratio = 1;
  EXPECT_NE(Choose(policy, LinkOf(1000)).spec.kind, CodecKind::kTopK);
}

TEST(PolicyTest, BytesAreThoseOfTheEncoder) {
  LinkLoad link = LinkOf(3);
  link.tensors = {{1000}, {500, false}};
  link.lossless_bytes = 77;
  const CodecSpec spec = {.kind = CodecKind::kInt4};
  const LinkChoice choice = EstimateLink(spec, link, 1);
  EXPECT_EQ(choice.forward_bytes, EncodedBytes(spec, 1000, Direction::kForward) + EncodedBytes(spec, 500, Direction::kForward) + 77);
  EXPECT_EQ(choice.backward_bytes, EncodedBytes(spec, 1000, Direction::kBackward));
  EXPECT_DOUBLE_EQ(choice.ratio, (4 * 1000 * 2 + 4 * 500 + 77.0) / static_cast<double>(choice.forward_bytes + choice.backward_bytes));
}

TEST(PolicyTest, ATensorInBf16HasHalfTheBytesUntilACodecTakesIt) {
  LinkLoad fp32 = LinkOf(3), bf16 = LinkOf(3);
  fp32.tensors = {{.elements = 1000}};
  bf16.tensors = {{.elements = 1000, .bytes_of_element = 2}};
  EXPECT_EQ(EstimateLink(Exact(), fp32, 1).forward_bytes, kHeaderBytes + 4000);
  const LinkChoice exact = EstimateLink(Exact(), bf16, 1);
  EXPECT_EQ(exact.forward_bytes, kHeaderBytes + 2000);
  EXPECT_EQ(exact.backward_bytes, kHeaderBytes + 2000);
  EXPECT_NEAR(exact.ratio, 1, 0.01) << "against what lies there, not against fp32";
  const CodecSpec int8 = {.kind = CodecKind::kInt8};
  EXPECT_EQ(EstimateLink(int8, bf16, 1).forward_bytes, EstimateLink(int8, fp32, 1).forward_bytes);
  EXPECT_NEAR(EstimateLink(int8, bf16, 1).ratio, EstimateLink(int8, fp32, 1).ratio / 2, 1e-9);
}

LinkLoad CarryingAlso(LinkLoad link, opdag::ActivationKind kind) {
  link.tensors.push_back({.elements = kMessageElements, .kind = kind});
  return link;
}

LinkLoad OfLossInputs(LinkLoad link) {
  for (CutTensor& tensor : link.tensors) tensor.kind = opdag::ActivationKind::kLossInput;
  return link;
}

TEST(LossInputTest, IsSentIn16BitsUnderEveryPolicyThatAsksForMore) {
  const std::vector<LinkLoad> links = {OfLossInputs(LinkOf(100'000))};
  for (const PolicyKind kind : {PolicyKind::kUniform, PolicyKind::kAdaTopK}) {
    for (const std::optional<CodecKind> codec :
         {std::optional<CodecKind>(), std::optional(CodecKind::kInt8), std::optional(CodecKind::kTopK)}) {
      const LinkChoice choice = Choose({.kind = kind, .codec = codec}, links[0]);
      EXPECT_EQ(ToString(choice.spec), "fp16");
      EXPECT_EQ(choice.forward_bytes, EncodedBytes({.kind = CodecKind::kFp16}, kMessageElements, Direction::kForward));
      EXPECT_EQ(choice.backward_bytes, EncodedBytes({.kind = CodecKind::kFp16}, kMessageElements, Direction::kBackward));
      EXPECT_EQ(choice.expected_loss_increase, 0);
      EXPECT_THAT(choice.reason, HasSubstr("what a loss reads"));
    }
  }
  EXPECT_EQ(Choose({.kind = PolicyKind::kAdaTopK}, links[0]).reason_code, "LossInputLimit");
  EXPECT_EQ(ToString(Choose(kAuto, OfLossInputs(LinkOf(0.5))).spec), "fp32") << "a link that needs nothing gets nothing";
}

TEST(LossInputTest, DoesNotHoldBackTheOtherTensorsOfItsLink) {
  const LinkLoad link = CarryingAlso(LinkOf(1000), opdag::ActivationKind::kLossInput);
  const LinkChoice choice = Choose({.kind = PolicyKind::kUniform, .codec = CodecKind::kTopK, .max_ratio = 10}, link);
  EXPECT_EQ(ToString(choice.spec), "topk@10:int8");
  EXPECT_EQ(choice.forward_bytes, EncodedBytes(TopK(10), kMessageElements, Direction::kForward) +
                                      EncodedBytes({.kind = CodecKind::kFp16}, kMessageElements, Direction::kForward));
  EXPECT_GT(choice.expected_loss_increase, 0);
  EXPECT_THAT(choice.reason, HasSubstr("topk@10:int8 on every link"));
  EXPECT_THAT(choice.reason, HasSubstr("what a loss reads goes as fp16"));
}

double Total(const std::vector<LinkChoice>& choices) {
  double total = 0;
  for (const LinkChoice& choice : choices) total += choice.expected_loss_increase;
  return total;
}

// Of links that would take so many times the target, carrying the residual stream.
std::vector<LinkLoad> LinksOf(const std::vector<double>& times) {
  std::vector<LinkLoad> links;
  for (const double t : times) {
    links.push_back(LinkOf(t));
    links.back().tensors[0].kind = opdag::ActivationKind::kResidual;
  }
  return links;
}

std::vector<LinkChoice> ChooseAll(const Policy& policy, const std::vector<LinkLoad>& links) {
  const auto choices = ChooseCodecs(policy, links, 1);
  EXPECT_TRUE(choices.ok()) << choices.status();
  return choices.ok() ? *choices : std::vector<LinkChoice>(links.size());
}

TEST(LossBudgetTest, IsKeptOverAllLinksTogether) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> exponent(-1, 3);
    std::vector<double> times(1 + rng() % 6);
    for (double& t : times) t = std::pow(10, exponent(rng));
    std::vector<LinkLoad> links = LinksOf(times);
    for (LinkLoad& link : links) link.tensors[0].kind = static_cast<opdag::ActivationKind>(1 + rng() % (opdag::kActivationKindCount - 1));
    for (const PolicyKind kind : {PolicyKind::kAdaTopK, PolicyKind::kUniform}) {
      for (const double budget : {0.0, 0.02, 0.05, 0.3, 3.0}) {
        const std::vector<LinkChoice> choices = ChooseAll({.kind = kind, .max_loss_increase = budget, .training_steps = 300}, links);
        EXPECT_LE(Total(choices), budget * (1 + 1e-9)) << "seed " << seed;
        for (const LinkChoice& choice : choices) EXPECT_NE(choice.reason, "");
      }
    }
  }
}

TEST(LossBudgetTest, GoesToTheSlowestLinkAndIsNamedByTheReason) {
  Policy policy = kAuto;
  const std::vector<LinkLoad> links = LinksOf({5, 40, 0.5});
  const std::vector<LinkChoice> free = ChooseAll(policy, links);
  ASSERT_EQ(free[0].spec.kind, CodecKind::kTopK);
  ASSERT_EQ(free[1].spec.kind, CodecKind::kTopK);
  policy.max_loss_increase = 0.05;
  ASSERT_GT(Total(free), policy.max_loss_increase);
  const std::vector<LinkChoice> capped = ChooseAll(policy, links);
  EXPECT_EQ(ToString(capped[2].spec), "fp32") << "it hides by itself";
  EXPECT_GT(capped[1].expected_loss_increase, 0);
  EXPECT_EQ(capped[0].expected_loss_increase, 0) << "a link that is faster than the one the budget stops does not need what is left";
  EXPECT_LT(capped[0].busy_s, capped[1].busy_s);
  EXPECT_EQ(capped[1].reason_code, "LossBudgetLimit");
  EXPECT_THAT(capped[1].reason, HasSubstr("is the most that maxLossIncrease of 0.05 nats allows over all links"));
}

TEST(LossBudgetTest, IsNotHeldUpByALinkThatNothingMakesFaster) {
  LinkLoad labels = LinkOf(3000);
  labels.tensors.clear();
  labels.lossless_bytes = 4 * kMessageElements;
  for (const PolicyKind kind : {PolicyKind::kAdaTopK, PolicyKind::kUniform}) {
    const Policy policy = {.kind = kind, .max_loss_increase = 0.05};
    std::vector<LinkLoad> links = LinksOf({300});
    const LinkChoice alone = ChooseAll(policy, links)[0];
    links.push_back(labels);
    EXPECT_EQ(ChooseAll(policy, links)[0].spec, alone.spec);
    EXPECT_EQ(alone.spec.kind, CodecKind::kTopK);
  }
}

TEST(LossBudgetTest, ChangesNothingWhereItIsNotSpent) {
  const std::vector<LinkLoad> links = LinksOf({1.5, 3, 0.5, 5});
  const std::vector<LinkChoice> free = ChooseAll(kAuto, links);
  Policy policy = kAuto;
  policy.max_loss_increase = Total(free);
  const std::vector<LinkChoice> same = ChooseAll(policy, links);
  for (size_t i = 0; i < links.size(); ++i) EXPECT_EQ(same[i].spec, free[i].spec) << i;
}

TEST(LossBudgetTest, WithoutAnyTheLadderEndsAtWhatCostsNothing) {
  Policy policy = kAuto;
  policy.max_loss_increase = 0;
  for (const LinkChoice& choice : ChooseAll(policy, LinksOf({30, 300, 3000}))) EXPECT_EQ(choice.expected_loss_increase, 0);
  EXPECT_NE(ChooseAll(policy, LinksOf({30}))[0].spec, Exact());
}

TEST(LossBudgetTest, ACodecThatTheJobNamesForAllLinksIsUsedWhateverItCosts) {
  const Policy policy = {.kind = PolicyKind::kUniform, .codec = CodecKind::kTopK, .max_ratio = 100, .max_loss_increase = 0.01};
  for (const LinkChoice& choice : ChooseAll(policy, LinksOf({0.1, 50}))) {
    EXPECT_EQ(ToString(choice.spec), "topk@100:int8");
    EXPECT_GT(choice.expected_loss_increase, policy.max_loss_increase);
  }
  EXPECT_EQ(MaxTopKRatio(policy), 100);
}

TEST(LossBudgetTest, NoChoiceHasAGreaterRatioThanTheMostThatTheBudgetAllows) {
  for (const double budget : {0.0, 0.02, 0.05, 0.1, 0.5, 10.0}) {
    Policy policy = kAuto;
    policy.max_loss_increase = budget;
    const double most = MaxTopKRatio(policy);
    EXPECT_LE(most, policy.max_ratio);
    for (const double times : {5.0, 30.0, 300.0, 30'000.0}) {
      for (const LinkChoice& choice : ChooseAll(policy, LinksOf({times}))) EXPECT_LE(choice.spec.ratio, most) << budget;
    }
  }
}

TEST(PolicyTest, LatencyEntersTheTimeButDoesNotCallForCompression) {
  LinkLoad link = LinkOf(0.5);
  link.forward_latency_s = 3;
  const LinkChoice choice = Choose(kAuto, link);
  EXPECT_EQ(choice.spec, Exact());
  EXPECT_NEAR(choice.forward_s, 3.5, 1e-4);
  EXPECT_NEAR(choice.backward_s, 0.5, 1e-4);
}

TEST(PolicyTest, NoneAndUniformTreatAllLinksAlike) {
  const std::vector<LinkLoad> links = {LinkOf(0.1), LinkOf(3), LinkOf(50)};
  const auto all = [&](const Policy& policy) {
    std::vector<std::string> specs;
    const auto choices = ChooseCodecs(policy, links, 1);
    if (!choices.ok()) return specs;
    for (const LinkChoice& choice : *choices) specs.push_back(ToString(choice.spec));
    return specs;
  };
  EXPECT_THAT(all({.kind = PolicyKind::kNone, .codec = CodecKind::kTopK}), EachOfThree("fp32"));
  EXPECT_THAT(all({.kind = PolicyKind::kUniform, .codec = CodecKind::kTopK, .max_ratio = 30}), EachOfThree("topk@30:int8"));
  EXPECT_THAT(all({.kind = PolicyKind::kUniform, .codec = CodecKind::kInt8, .max_ratio = 30}), EachOfThree("int8"));
  EXPECT_THAT(all({.kind = PolicyKind::kUniform, .codec = CodecKind::kExact, .error_feedback = true}), EachOfThree("fp32"));
  const auto uniform_auto = all({.kind = PolicyKind::kUniform});
  EXPECT_THAT(uniform_auto, EachOfThree(ToString(Choose(kAuto, links[2]).spec)));
}

TEST(PolicyTest, AdaTopKWithANamedCodecUsesItOnlyWhereNeeded) {
  const auto codec = [](CodecKind kind, double times) {
    return ToString(Choose({.kind = PolicyKind::kAdaTopK, .codec = kind}, LinkOf(times)).spec);
  };
  EXPECT_EQ(codec(CodecKind::kInt8, 0.5), "fp32");
  EXPECT_EQ(codec(CodecKind::kInt8, 2), "int8");
  EXPECT_EQ(codec(CodecKind::kTopK, 0.5), "fp32");
  EXPECT_EQ(codec(CodecKind::kTopK, 200000), "topk@100:int8");
  EXPECT_EQ(codec(CodecKind::kExact, 200), "fp32");
  EXPECT_EQ(Choose({.kind = PolicyKind::kAdaTopK, .codec = CodecKind::kInt8}, LinkOf(10)).reason_code, "CodecLimit");
}

TEST(PolicyTest, ASlowerLinkIsNeverGivenMoreBytesNorLessLoss) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> exponent(-2, 4);
    LinkLoad link = LinkOf(std::pow(10, exponent(rng)));
    link.tensors = {{static_cast<int64_t>(rng() % 1000000 + 1)}, {static_cast<int64_t>(rng() % 1000 + 1), rng() % 2 == 0}};
    Policy policy = kAuto;
    policy.max_ratio = std::pow(10, exponent(rng) / 2 + 1);
    if (rng() % 3 == 0) policy.codec = CodecKind::kTopK;
    LinkLoad slower = link;
    const double factor = 1 + static_cast<double>(rng() % 1000) / 100;
    slower.forward_bandwidth_bytes_per_s /= factor;
    slower.backward_bandwidth_bytes_per_s /= factor;
    const LinkChoice a = Choose(policy, link), b = Choose(policy, slower);
    EXPECT_LE(b.forward_bytes + b.backward_bytes, a.forward_bytes + a.backward_bytes) << "seed " << seed;
    EXPECT_GE(b.expected_loss_increase, a.expected_loss_increase) << "seed " << seed;
    EXPECT_LE(b.spec.ratio, policy.max_ratio) << "seed " << seed;
    EXPECT_GE(b.busy_s, 0) << "seed " << seed;
  }
}

TEST(PolicyTest, RefusesNonsenseByName) {
  const auto message = [](auto change) {
    LinkLoad link = LinkOf(1);
    Policy policy = kAuto;
    double target_s = 1;
    change(link, policy, target_s);
    return std::string(ChooseCodecs(policy, std::span(&link, 1), target_s).status().message());
  };
  EXPECT_THAT(message([](auto& link, auto&, auto&) { link.backward_bandwidth_bytes_per_s = 0; }),
              HasSubstr("'paris-0 -> tokyo-0': backward bandwidth"));
  EXPECT_THAT(message([](auto& link, auto&, auto&) { link.forward_latency_s = std::nan(""); }), HasSubstr("forward latency"));
  EXPECT_THAT(message([](auto& link, auto&, auto&) { link.tensors[0].elements = -1; }), HasSubstr("elements of a tensor"));
  EXPECT_THAT(message([](auto& link, auto&, auto&) { link.tensors.resize(20000); }), HasSubstr("number of tensors"));
  EXPECT_THAT(message([](auto&, auto& policy, auto&) { policy.max_ratio = 0.5; }), HasSubstr("ratio 0.5"));
  EXPECT_THAT(message([](auto&, auto&, auto& target_s) { target_s = 0; }), HasSubstr("target of 0 s"));
}

}  // namespace
}  // namespace fusionllm::compression
