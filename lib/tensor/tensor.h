// Dense row-major tensors: a borrowed view and an owning buffer. No arithmetic lives here.
//
// A view does not own its memory: the one who hands it out keeps the memory alive for as long as the callee may use it.
// Buffers are aligned to 64 bytes (one AVX-512 register, one cache line). Nothing here is thread-safe beyond plain const access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "lib/tensor/dtype.h"
#include "lib/tensor/shape.h"

namespace fusionllm::tensor {

inline constexpr size_t kAlignment = 64;

// What a tensor is, without its data.
struct TensorType {
  DType dtype = DType::kF32;
  Shape shape;

  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(shape.elements()) * SizeOf(dtype); }
  std::string ToString() const;  // "f32[2, 3]"
  bool operator==(const TensorType&) const = default;
};

// A borrowed, mutable tensor. T must match the dtype in the typed accessors; that is the caller's duty and not checked.
struct TensorView {
  TensorType type;
  void* data = nullptr;

  const Shape& shape() const { return type.shape; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  float* f32() const { return static_cast<float*>(data); }
  std::span<std::byte> bytes() const { return {static_cast<std::byte*>(data), type.bytes()}; }
};

// The same, read-only. A TensorView converts to it.
struct ConstTensorView {
  TensorType type;
  const void* data = nullptr;

  ConstTensorView() = default;
  ConstTensorView(TensorType type, const void* data) : type(std::move(type)), data(data) {}
  ConstTensorView(const TensorView& view) : type(view.type), data(view.data) {}  // NOLINT(google-explicit-constructor)

  const Shape& shape() const { return type.shape; }
  template <typename T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  const float* f32() const { return static_cast<const float*>(data); }
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data), type.bytes()}; }
};

// Owns aligned, uninitialised bytes. Movable, not copyable. An allocation failure ends the process.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_ = 0;
};

// Owns one tensor, zero-filled at construction.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorType type);

  const TensorType& type() const { return type_; }
  const Shape& shape() const { return type_.shape; }
  float* f32() const { return reinterpret_cast<float*>(buffer_.data()); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(buffer_.data());
  }
  TensorView view() { return {type_, buffer_.data()}; }
  ConstTensorView view() const { return {type_, buffer_.data()}; }
  std::span<std::byte> bytes() const { return {buffer_.data(), type_.bytes()}; }

 private:
  TensorType type_;
  Buffer buffer_;
};

}  // namespace fusionllm::tensor
