// What command-line options may hold, beyond what CLI11 checks by itself: its range checks let NaN pass, and its parser wraps -1 around
// for unsigned types.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace fusionllm::cli {

// A finite number, at least `least` (above it, with `above`).
CLI::Validator NumberFrom(double min, bool above = false);
inline CLI::Validator NumberAbove(double min) { return NumberFrom(min, /*above=*/true); }
// A name of a Kubernetes object that is also a label of DNS (RFC 1123).
CLI::Validator ObjectName();
CLI::Validator JobName();
CLI::Validator ClusterName();  // of a FusionCluster, after which Pods are named
// A name of a site, as topologies have it.
CLI::Validator SiteName();
// Whether a word is a field of a job with its value, "spec.training.steps=5", and no file.
bool LooksLikeSetting(const std::string& word);
// Not such a word: one that lost its --set.
CLI::Validator JobFile();
// Digits alone, as many as fit a 64-bit unsigned number.
CLI::Validator WholeNumber();
// One of these words, none of which has a comma; with `problem` whatever it has no objection to (it returns a sentence, or nothing), of
// which the words are examples.
CLI::Validator OneOf(std::vector<std::string> words, std::function<std::string(const std::string&)> problem = nullptr);
// The words of an option that is checked by OneOf, for completion; none: it takes anything.
std::vector<std::string> WordsOf(CLI::Option& option);

}  // namespace fusionllm::cli
