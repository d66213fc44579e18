#include "lib/tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "absl/strings/str_cat.h"

namespace fusionllm::tensor {

std::string TensorType::ToString() const { return absl::StrCat(Name(dtype), shape.ToString()); }

Buffer::Buffer(size_t bytes) : size_(bytes) {
  const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded == 0 ? kAlignment : rounded)));
  if (data_ == nullptr) throw std::bad_alloc();
}

Tensor::Tensor(TensorType type) : type_(std::move(type)), buffer_(type_.bytes()) {
  if (type_.bytes() > 0) std::memset(buffer_.data(), 0, type_.bytes());
}

}  // namespace fusionllm::tensor
