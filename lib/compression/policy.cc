#include "lib/compression/policy.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/compression/loss_prior.h"
#include "lib/compression/registry.h"

namespace fusionllm::compression {
namespace {

// Of fp32 bytes. From the least ratio at which the probe tried it up to 114, a trained bottleneck lost less than top-k (and than no
// compression at all).
constexpr double kBottleneckFromWireRatio = 8;

absl::Status FieldError(const LinkLoad& link, absl::string_view field, double value) {
  return absl::InvalidArgumentError(absl::StrCat("link '", link.name, "': ", field, " must not be ", value));
}

absl::Status CheckLink(const LinkLoad& link) {
  for (const auto& [name, bandwidth] : {std::pair{"forward bandwidth", link.forward_bandwidth_bytes_per_s},
                                        std::pair{"backward bandwidth", link.backward_bandwidth_bytes_per_s}}) {
    if (!(bandwidth > 0) || !std::isfinite(bandwidth)) return FieldError(link, name, bandwidth);
  }
  for (const auto& [name, latency] :
       {std::pair{"forward latency", link.forward_latency_s}, std::pair{"backward latency", link.backward_latency_s}}) {
    if (!(latency >= 0) || !std::isfinite(latency)) return FieldError(link, name, latency);
  }
  if (link.lossless_bytes < 0 || link.lossless_bytes > (int64_t{1} << 50)) {
    return FieldError(link, "lossless bytes", static_cast<double>(link.lossless_bytes));
  }
  if (link.tensors.size() > kMaxTensorsPerLink) return FieldError(link, "number of tensors", static_cast<double>(link.tensors.size()));
  for (const CutTensor& tensor : link.tensors) {
    if (tensor.elements < 0 || tensor.elements > kMaxElements) {
      return FieldError(link, "elements of a tensor", static_cast<double>(tensor.elements));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPolicy(const Policy& policy, double target_s) {
  if (!(target_s > 0) || !std::isfinite(target_s)) {
    return absl::InvalidArgumentError(absl::StrCat("compression: the target of ", target_s, " s per micro-batch is not a positive time"));
  }
  if (!(policy.max_ratio >= 1 && policy.max_ratio <= kMaxTopKRatio)) {
    return absl::InvalidArgumentError(absl::StrCat("compression: ratio ", policy.max_ratio, " is outside [1, ", kMaxTopKRatio, "]"));
  }
  return absl::OkStatus();
}

// Whether a codec would change anything: labels and masks travel as they are.
bool IsLossy(const LinkLoad& link) {
  return std::any_of(link.tensors.begin(), link.tensors.end(), [](const CutTensor& tensor) { return tensor.elements > 0; });
}

bool OnlyInnerResiduals(const LinkLoad& link) {
  return IsLossy(link) && std::all_of(link.tensors.begin(), link.tensors.end(), [](const CutTensor& tensor) {
           return tensor.elements == 0 || tensor.kind == opdag::ActivationKind::kInnerResidual;
         });
}

// All but top-k.
CodecSpec DenseSpec(const Policy& policy, CodecKind kind) {
  return {.kind = kind, .error_feedback = policy.error_feedback && kind != CodecKind::kExact};
}

CodecSpec TopKSpec(const Policy& policy, const LinkLoad& link, double ratio) {
  const bool fewer_bits = policy.kind == PolicyKind::kAdaTopK && OnlyInnerResiduals(link);
  CodecSpec spec = TopK(ratio, policy.top_k_values.value_or(fewer_bits ? ValueKind::kInt4 : ValueKind::kInt8));
  spec.error_feedback = policy.error_feedback;
  return spec;
}

// Rounded up to three digits, so that plans and texts stay short.
double ThreeDigitsUp(double ratio) {
  const double unit = std::pow(10.0, std::floor(std::log10(ratio)) - 2);
  double rounded = std::ceil(ratio / unit) * unit;
  // 123 times 0.1 is not the number that "12.3" reads as.
  if (double read = 0; absl::SimpleAtod(absl::StrFormat("%.10g", rounded), &read)) rounded = read;
  return rounded;
}

// The least top-k ratio that hides the link; max_ratio when none does. Encoded bytes never grow with the ratio, so bisection is safe.
double MinHidingRatio(const Policy& policy, const LinkLoad& link, double target_s) {
  const auto hides = [&](double ratio) { return EstimateLink(TopKSpec(policy, link, ratio), link, target_s).hidden; };
  if (hides(1)) return 1;
  if (!hides(policy.max_ratio)) return policy.max_ratio;
  double low = 1, high = policy.max_ratio;
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (hides(middle) ? high : low) = middle;
  }
  return std::min(policy.max_ratio, ThreeDigitsUp(high));
}

// The levels that a link may use, least aggressive first.
std::vector<CodecSpec> AllowedLevels(const Policy& policy, const LinkLoad& link, double target_s) {
  std::vector<CodecSpec> allowed = {Exact()};
  if (policy.codec.has_value() && !IsSparse(*policy.codec)) {
    if (*policy.codec != CodecKind::kExact) allowed.push_back(DenseSpec(policy, *policy.codec));
    return allowed;
  }
  if (!policy.codec.has_value()) {
    for (const Codec* codec : Codecs()) {
      if (codec->traits.automatic && codec->traits.kind <= policy.LastLevel()) allowed.push_back(DenseSpec(policy, codec->traits.kind));
    }
  }
  // Top-k at ratio 1 would only make the values coarse.
  if (policy.max_ratio > 1 && IsSparse(policy.LastLevel()))
    allowed.push_back(TopKSpec(policy, link, MinHidingRatio(policy, link, target_s)));
  return allowed;
}

double TotalLossIncrease(std::span<const LinkChoice> choices) {
  double total = 0;
  for (const LinkChoice& choice : choices) total += choice.expected_loss_increase;
  return total;
}

// Sums of the same numbers in another order differ by less.
constexpr double kLossRounding = 1e-12;
// Ratios that a link may be stopped at lie so far apart.
constexpr double kRatioStep = 1.25;
constexpr double kMinRatio = 2;  // sends gradients in half of the bytes that go with int4, int8; below, int8 values are longer than int4

// The allowed levels and, below the ratio of the last, smaller ratios of top-k.
std::vector<CodecSpec> Levels(const Policy& policy, const LinkLoad& link, double target_s) {
  std::vector<CodecSpec> levels = AllowedLevels(policy, link, target_s);
  const CodecSpec last = levels.back();
  if (!IsSparse(last.kind)) return levels;
  levels.pop_back();
  for (double ratio = kMinRatio; ratio < last.ratio; ratio *= kRatioStep) {
    levels.push_back(TopKSpec(policy, link, ThreeDigitsUp(ratio)));
  }
  levels.push_back(last);
  return levels;
}

// See ChooseCodecs. Lossy links only move.
std::vector<LinkChoice> ClimbWithinBudget(const Policy& policy, std::span<const LinkLoad> links, double target_s) {
  std::vector<std::vector<LinkChoice>> levels(links.size());
  std::vector<LinkChoice> choices;
  for (size_t i = 0; i < links.size(); ++i) {
    levels[i] = {EstimateLink(Exact(), links[i], target_s, policy.training_steps)};
    if (IsLossy(links[i])) {
      levels[i].clear();
      for (const CodecSpec& spec : Levels(policy, links[i], target_s)) {
        levels[i].push_back(EstimateLink(spec, links[i], target_s, policy.training_steps));
      }
    }
    choices.push_back(levels[i].front());
  }
  double left = policy.LinkLossBudget() * (1 + kLossRounding), enough_s = target_s;
  // Nothing makes them faster: the labels of a shared link look as slow as its activations were uncompressed.
  std::vector<char> stuck(links.size(), 0);
  while (true) {
    size_t slowest = links.size();
    for (size_t i = 0; i < links.size(); ++i) {
      if (stuck[i] || choices[i].busy_s <= enough_s) continue;
      if (slowest == links.size() || choices[i].busy_s > choices[slowest].busy_s) slowest = i;
    }
    if (slowest == links.size()) break;
    LinkChoice& choice = choices[slowest];
    const LinkChoice* next = nullptr;
    for (const LinkChoice& level : levels[slowest]) {
      if (level.busy_s >= choice.busy_s) continue;
      if (next == nullptr || level.expected_loss_increase < next->expected_loss_increase) next = &level;
    }
    const double more = next == nullptr ? 0 : next->expected_loss_increase - choice.expected_loss_increase;
    if (next == nullptr || more > left) {
      stuck[slowest] = 1;
      if (next != nullptr) enough_s = choice.busy_s;
      continue;
    }
    left -= more;
    choice = *next;
  }
  return choices;
}

// One codec for all that may have one: of those the budget allows the one that makes the slowest link fastest, the less aggressive of
// equals.
CodecSpec UniformWithinBudget(const Policy& policy, std::span<const LinkLoad> links, double target_s, std::span<const CodecSpec> levels) {
  CodecSpec best = Exact();
  double best_s = std::numeric_limits<double>::infinity();
  for (const CodecSpec& spec : levels) {
    double busy_s = 0, cost = 0;
    for (const LinkLoad& link : links) {
      if (!IsLossy(link)) continue;
      const LinkChoice choice = EstimateLink(spec, link, target_s, policy.training_steps);
      busy_s = std::max(busy_s, choice.hidden ? 0 : choice.busy_s);
      cost += choice.expected_loss_increase;
    }
    if (cost > policy.LinkLossBudget() * (1 + kLossRounding) || busy_s >= best_s) continue;
    best = spec;
    best_s = busy_s;
  }
  return best;
}

// The least aggressive level that hides the link, or the fastest (the less aggressive of equals).
LinkChoice LeastAggressiveHidingLevel(const Policy& policy, const LinkLoad& link, double target_s) {
  const std::vector<CodecSpec> allowed = AllowedLevels(policy, link, target_s);
  LinkChoice best = EstimateLink(allowed.front(), link, target_s, policy.training_steps);
  for (const CodecSpec& rung : std::span(allowed).subspan(1)) {
    if (best.hidden) break;
    LinkChoice choice = EstimateLink(rung, link, target_s, policy.training_steps);
    if (choice.hidden || choice.busy_s < best.busy_s) best = std::move(choice);
  }
  return best;
}

bool IsLossInput(const CutTensor& tensor) { return tensor.elements > 0 && tensor.kind == opdag::ActivationKind::kLossInput; }

bool OnlyLossInputs(const LinkLoad& link) {
  return IsLossy(link) && std::all_of(link.tensors.begin(), link.tensors.end(),
                                      [](const CutTensor& tensor) { return tensor.elements == 0 || IsLossInput(tensor); });
}

std::string Times(const LinkChoice& choice, double target_s) {
  return absl::StrFormat("%.3g ms a micro-batch of a target of %.3g ms", 1e3 * choice.busy_s, 1e3 * target_s);
}

std::string Reserved(const Policy& policy) {
  return policy.reserved_loss > 0 ? absl::StrFormat(", %.3g of it kept for tied gradients,", policy.reserved_loss) : "";
}

// `held_back`: the budget of loss does not allow what the link alone would have been given.
void Explain(const Policy& policy, const LinkLoad& link, double target_s, bool held_back, LinkChoice* choice) {
  const std::string codec = ToString(choice->spec);
  const bool loss_inputs = std::any_of(link.tensors.begin(), link.tensors.end(), IsLossInput), only_loss_inputs = OnlyLossInputs(link);
  const LinkChoice exact = EstimateLink(Exact(), link, target_s);
  choice->needed_ratio =
      std::max(AdaTopKRatio(exact.forward_bytes, link.forward_bandwidth_bytes_per_s, target_s, std::numeric_limits<double>::infinity()),
               AdaTopKRatio(exact.backward_bytes, link.backward_bandwidth_bytes_per_s, target_s, std::numeric_limits<double>::infinity()));
  if (policy.kind == PolicyKind::kNone) {
    choice->reason_code = "PolicyNone";
    choice->reason = absl::StrCat("the job asks for no compression; busy ", Times(*choice, target_s));
  } else if (!IsLossy(link)) {
    choice->reason_code = "NothingToCompress";
    choice->reason = "carries nothing that a codec may change";
  } else if (policy.kind == PolicyKind::kUniform) {
    choice->reason_code = "Uniform";
    choice->reason =
        absl::StrCat(codec, only_loss_inputs ? " for what a loss reads" : " on every link", "; busy ", Times(*choice, target_s));
  } else if (choice->spec.kind == CodecKind::kExact && choice->hidden) {
    choice->reason_code = "Hidden";
    choice->reason = absl::StrCat("hidden behind compute without compression: busy ", Times(*choice, target_s));
  } else {
    choice->reason_code = choice->hidden                 ? "HiddenByCompression"
                          : only_loss_inputs             ? "LossInputLimit"
                          : held_back                    ? "LossBudgetLimit"
                          : IsSparse(policy.LastLevel()) ? "RatioLimit"
                                                         : "CodecLimit";
    choice->reason =
        absl::StrFormat("uncompressed it would take %.3g times the target; %s %s: busy %s", choice->needed_ratio, codec,
                        choice->hidden     ? "hides the link"
                        : only_loss_inputs ? "is the most that what a loss reads may take and does not hide it"
                        : held_back ? absl::StrFormat("is the most that maxLossIncrease of %.3g nats allows over all links%s and does not "
                                                      "hide it",
                                                      policy.max_loss_increase, Reserved(policy))
                                    : "is the most the job allows and does not hide it",
                        Times(*choice, target_s));
  }
  if (const CodecSpec own = AllowedCodec(choice->spec, opdag::ActivationKind::kLossInput); loss_inputs && own.kind != choice->spec.kind) {
    absl::StrAppend(&choice->reason, "; what a loss reads goes as ", ToString(own));
  }
  if (choice->expected_loss_increase > 0) {
    absl::StrAppendFormat(&choice->reason, "; expected loss +%.3f (docs/results/loss-cost.md)", choice->expected_loss_increase);
  }
  if (choice->bottleneck_layer_is_better)
    choice->reason += "; a trained bottleneck at this cut would do better, which this version does not have";
}

}  // namespace

double AdaTopKRatio(int64_t bytes, double bandwidth_bytes_per_s, double target_s, double max_ratio) {
  return std::clamp(static_cast<double>(bytes) / (bandwidth_bytes_per_s * target_s), 1.0, max_ratio);
}

double MaxTopKRatio(const Policy& policy) {
  const bool chosen = policy.kind == PolicyKind::kAdaTopK || !policy.codec.has_value();
  const auto within = [&](double ratio) {
    if (!chosen) return true;
    constexpr opdag::ActivationKind kKinds[] = {opdag::ActivationKind::kInnerResidual, opdag::ActivationKind::kResidual,
                                                opdag::ActivationKind::kAttentionInput, opdag::ActivationKind::kNormalized,
                                                opdag::ActivationKind::kHidden};
    return std::any_of(std::begin(kKinds), std::end(kKinds), [&](opdag::ActivationKind kind) {
      return ExpectedLossIncrease(TopK(ratio), kind, policy.training_steps) <= policy.LinkLossBudget() * (1 + kLossRounding);
    });
  };
  if (within(policy.max_ratio)) return policy.max_ratio;
  double low = 1, high = policy.max_ratio;
  while (high / low > 1.001) {
    const double middle = std::sqrt(low * high);
    (within(middle) ? low : high) = middle;
  }
  return high;
}

LinkChoice EstimateLink(const CodecSpec& spec, const LinkLoad& load, double target_s, int64_t training_steps) {
  LinkChoice choice = {.spec = spec, .forward_bytes = load.lossless_bytes};
  int64_t dense_bytes = load.lossless_bytes, fp32_bytes = load.lossless_bytes;
  std::optional<CodecSpec> only;  // that all tensors take
  for (const CutTensor& tensor : load.tensors) {
    const CodecSpec own = AllowedCodec(spec, tensor.kind);
    choice.forward_bytes += EncodedBytes(own, tensor.elements, Direction::kForward, tensor.bytes_of_element);
    if (tensor.has_gradient) choice.backward_bytes += EncodedBytes(own, tensor.elements, Direction::kBackward, tensor.bytes_of_element);
    if (tensor.elements > 0) {
      only = !only.has_value() || *only == own ? own : spec;
      choice.expected_loss_increase = std::max(choice.expected_loss_increase, ExpectedLossIncrease(own, tensor.kind, training_steps));
    }
    const int64_t elements = tensor.elements * (tensor.has_gradient ? 2 : 1);
    dense_bytes += tensor.bytes_of_element * elements;
    fp32_bytes += 4 * elements;
  }
  const int64_t encoded_bytes = choice.forward_bytes + choice.backward_bytes;
  if (dense_bytes > 0) choice.ratio = static_cast<double>(dense_bytes) / static_cast<double>(encoded_bytes);
  const double forward_busy_s = static_cast<double>(choice.forward_bytes) / load.forward_bandwidth_bytes_per_s;
  const double backward_busy_s = static_cast<double>(choice.backward_bytes) / load.backward_bandwidth_bytes_per_s;
  choice.forward_s = load.forward_latency_s + forward_busy_s;
  choice.backward_s = load.backward_latency_s + backward_busy_s;
  choice.busy_s = std::max(forward_busy_s, backward_busy_s);
  choice.hidden = choice.busy_s <= target_s;
  choice.spec = only.value_or(spec);
  choice.bottleneck_layer_is_better =
      IsSparse(choice.spec.kind) && static_cast<double>(fp32_bytes) >= kBottleneckFromWireRatio * static_cast<double>(encoded_bytes);
  return choice;
}

absl::StatusOr<std::vector<LinkChoice>> ChooseCodecs(const Policy& policy, std::span<const LinkLoad> links, double target_s) {
  FUSIONLLM_RETURN_IF_ERROR(CheckPolicy(policy, target_s));
  if (links.size() > kMaxLinks) return absl::InvalidArgumentError(absl::StrCat("compression: ", links.size(), " links are too many"));
  std::vector<LinkChoice> choices;
  for (const LinkLoad& link : links) {
    FUSIONLLM_RETURN_IF_ERROR(CheckLink(link));
    const bool adaptive = policy.kind == PolicyKind::kAdaTopK || (policy.kind == PolicyKind::kUniform && !policy.codec.has_value());
    CodecSpec fixed;
    if (policy.kind == PolicyKind::kUniform) {
      const CodecKind kind = policy.codec.value_or(CodecKind::kExact);
      fixed = IsSparse(kind) ? TopKSpec(policy, link, policy.max_ratio) : DenseSpec(policy, kind);
    }
    choices.push_back(!IsLossy(link) ? EstimateLink(Exact(), link, target_s)
                      : adaptive     ? LeastAggressiveHidingLevel(policy, link, target_s)
                                     : EstimateLink(fixed, link, target_s, policy.training_steps));
  }
  std::vector<LinkChoice> wanted;  // where the budget does not allow it
  if (policy.kind == PolicyKind::kAdaTopK && TotalLossIncrease(choices) > policy.LinkLossBudget()) {
    wanted = std::exchange(choices, ClimbWithinBudget(policy, links, target_s));
  }
  if (policy.kind == PolicyKind::kUniform && !policy.codec.has_value() && !choices.empty()) {
    // One for all: the highest level that any link needs.
    const auto harsher = [](const LinkChoice& a, const LinkChoice& b) {
      return std::pair(a.spec.kind, a.spec.ratio) < std::pair(b.spec.kind, b.spec.ratio);
    };
    const size_t hardest = static_cast<size_t>(std::max_element(choices.begin(), choices.end(), harsher) - choices.begin());
    const auto give_all = [&](const CodecSpec& spec) {
      for (size_t i = 0; i < links.size(); ++i) {
        if (IsLossy(links[i])) choices[i] = EstimateLink(spec, links[i], target_s, policy.training_steps);
      }
    };
    give_all(choices[hardest].spec);
    if (TotalLossIncrease(choices) > policy.LinkLossBudget()) {
      wanted = choices;
      give_all(UniformWithinBudget(policy, links, target_s, Levels(policy, links[hardest], target_s)));
    }
  }
  for (size_t i = 0; i < links.size(); ++i) {
    const bool held_back = !wanted.empty() && wanted[i].expected_loss_increase > choices[i].expected_loss_increase;
    Explain(policy, links[i], target_s, held_back, &choices[i]);
  }
  return choices;
}

}  // namespace fusionllm::compression
