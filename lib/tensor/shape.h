// The extents of a dense, row-major tensor, outermost first. A scalar has no dimensions and one element.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace fusionllm::tensor {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return static_cast<int>(dims_.size()); }
  const std::vector<int64_t>& dims() const { return dims_; }
  // Negative indices count from the end: dim(-1) is the innermost extent. The index must be in range.
  int64_t dim(int index) const { return dims_[index < 0 ? index + rank() : index]; }
  int64_t operator[](int index) const { return dim(index); }

  // Product of the extents; 1 for a scalar. Shapes are checked against overflow where they enter (text, YAML, wire, files).
  int64_t elements() const;
  // Product of all extents but the last: the rows of a matrix view. 1 for a scalar.
  int64_t rows() const;

  std::string ToString() const;  // "[2, 3]", "[]"

  bool operator==(const Shape&) const = default;

 private:
  std::vector<int64_t> dims_;
};

}  // namespace fusionllm::tensor
