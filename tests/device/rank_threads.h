// Runs one thread per rank of a group.
#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "dhisparse/communicator.h"

namespace dhs {

using Ranks = std::vector<std::unique_ptr<Communicator>>;

// body(rank's communicator) on a thread each; returns when all have. A thread gives its
// communicator back when it ends, as a program's would.
inline void run_ranks(Ranks ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) {
    threads.emplace_back([&body, owned = std::move(rank)] { body(*owned); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace dhs
