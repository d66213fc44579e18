// Numbers that C++ and Python make alike, so that neither weights nor data need files: formula_values of golden/make_goldens.py.
#pragma once

#include <cstdint>

#include "lib/tensor/tensor.h"

namespace fusionllm::numerics {

// Element i of stream `number`: uniform in [shift - scale / 2, shift + scale / 2), 24 bits, by splitmix64.
inline float FormulaElement(uint64_t number, uint64_t i, double scale, double shift) {
  uint64_t z = (i + (number << 32)) * 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  z ^= z >> 31;
  return static_cast<float>((static_cast<double>(z >> 40) / (1 << 24) - 0.5) * scale + shift);
}

// `to` is f32.
inline void FillByFormula(const tensor::TensorView& to, uint64_t number, double scale, double shift) {
  for (int64_t i = 0; i < to.type.elements(); ++i) to.f32()[i] = FormulaElement(number, i, scale, shift);
}

}  // namespace fusionllm::numerics
