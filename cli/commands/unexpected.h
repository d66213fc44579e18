// What is said of a command line with words that fusionctl does not take: what they were probably meant to be, and what to write instead.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace fusionllm::cli {

// After a parse that ended with words left over: of no command at all, and of one that was found. They tell stderr (CLI11 would list the
// words, the last first, and no way out) and give the exit code.
int UnknownCommand(const CLI::App& app);
int UnexpectedArguments(const CLI::App& app);

// CLI11's failure message: "fusionctl run: JOB is required; see fusionctl run --help", as this folder's own errors read.
std::string UsageError(const CLI::App* app, const CLI::Error& error);

// The words of a command line, without the program's, with options under the names that they have now. One under the name that it had in
// the previous release is still read in this one, by the commands that had it, and a warning with the new name is written to stderr.
std::vector<std::string> WithCurrentOptionNames(std::vector<std::string> words);

}  // namespace fusionllm::cli
