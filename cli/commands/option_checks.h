// What command-line options may hold, beyond what CLI11 checks by itself: its range checks let NaN pass, and its parser wraps -1 around
// for unsigned types.
#pragma once

#include <CLI/CLI.hpp>

namespace fusionllm::cli {

// A finite number, at least `least` (above it, with `above`).
CLI::Validator NumberFrom(double least, bool above = false);
inline CLI::Validator NumberAbove(double least) { return NumberFrom(least, /*above=*/true); }
// A name of a Kubernetes object that is also a label of DNS (RFC 1123).
CLI::Validator ObjectName();
// Digits alone, as many as fit a 64-bit unsigned number.
CLI::Validator WholeNumber();

}  // namespace fusionllm::cli
