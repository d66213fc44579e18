// The rates behind samples that a test makes up.
#pragma once

namespace fusionllm::estimator::testing {

struct TrueRates {
  double overhead_s, per_flop, per_byte;
  double Seconds(double flops, double bytes) const { return overhead_s + flops * per_flop + bytes * per_byte; }
};

}  // namespace fusionllm::estimator::testing
