#include "lib/tensor/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace fusionllm::tensor {

int64_t Shape::elements() const {
  int64_t product = 1;
  for (const int64_t extent : dims_) product *= extent;
  return product;
}

int64_t Shape::rows() const {
  int64_t product = 1;
  for (size_t i = 0; i + 1 < dims_.size(); ++i) product *= dims_[i];
  return product;
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(dims_, ", "), "]"); }

}  // namespace fusionllm::tensor
