#include "lib/estimator/cost_model.h"

#include <algorithm>
#include <vector>

namespace fusionllm::estimator {
namespace {

using opdag::OpClass;

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + numbers.size() / 2, numbers.end());
  return numbers[numbers.size() / 2];
}

// Whether the arithmetic of a class decides its time, not the memory it streams.
bool IsArithmetic(OpClass op_class) {
  return op_class == OpClass::kMatmul || op_class == OpClass::kAttention || op_class == OpClass::kConvolution;
}

bool IsKnown(const OpRate& rate) { return rate.samples > 0 || rate.specified; }

// The rates of classes that are known, those of the wanted kind or all.
std::vector<const OpRate*> Known(const CostModel& model, std::optional<bool> arithmetic) {
  std::vector<const OpRate*> rates;
  for (size_t c = 0; c < model.rates.size(); ++c) {
    if (!IsKnown(model.rates[c])) continue;
    if (!arithmetic.has_value() || IsArithmetic(static_cast<OpClass>(c)) == *arithmetic) rates.push_back(&model.rates[c]);
  }
  return rates;
}

OpRate Typical(const std::vector<const OpRate*>& rates) {
  std::vector<double> overheads, per_flop, per_byte;
  for (const OpRate* rate : rates) {
    overheads.push_back(rate->overhead_s);
    per_flop.push_back(rate->seconds_per_flop);
    per_byte.push_back(rate->seconds_per_byte);
  }
  return {.overhead_s = Median(std::move(overheads)),
          .seconds_per_flop = Median(std::move(per_flop)),
          .seconds_per_byte = Median(std::move(per_byte)),
          .relative_error = kUnknownError};
}

}  // namespace

Estimate EstimateOp(const CostModel& model, OpClass op_class, const std::string& signature, double flops, double bytes) {
  if (const auto found = model.measured.find(signature); found != model.measured.end()) return {.seconds = found->second};
  if (const auto found = model.inferred.find(signature); found != model.inferred.end()) {
    return {.seconds = found->second.seconds, .measured = false, .relative_error = found->second.relative_error, .inferred = true};
  }
  if (op_class == OpClass::kFree) return {};
  const OpRate& rate = model.rates[static_cast<size_t>(op_class)];
  const double arithmetic_s = flops * rate.seconds_per_flop, memory_s = bytes * rate.seconds_per_byte;
  return {.seconds = rate.overhead_s + (rate.specified ? std::max(arithmetic_s, memory_s) : arithmetic_s + memory_s),
          .measured = false,
          .relative_error = rate.relative_error};
}

int FillMissingRates(CostModel& model) {
  const std::vector<const OpRate*> all = Known(model, std::nullopt);
  if (all.empty()) return 0;
  std::vector<std::pair<size_t, OpRate>> borrowed;
  for (size_t c = 0; c < model.rates.size(); ++c) {
    const auto op_class = static_cast<OpClass>(c);
    if (IsKnown(model.rates[c]) || op_class == OpClass::kFree) continue;
    const std::vector<const OpRate*> like = Known(model, IsArithmetic(op_class));
    borrowed.emplace_back(c, Typical(like.empty() ? all : like));
  }
  for (const auto& [c, rate] : borrowed) model.rates[c] = rate;
  return static_cast<int>(borrowed.size());
}

std::optional<OpClass> ClassNamed(absl::string_view name) {
  for (int c = 0; c < opdag::kOpClassCount; ++c) {
    if (opdag::Name(static_cast<OpClass>(c)) == name) return static_cast<OpClass>(c);
  }
  return std::nullopt;
}

}  // namespace fusionllm::estimator
