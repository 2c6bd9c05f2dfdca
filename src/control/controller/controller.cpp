#include "control/controller/controller.hpp"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

#include "base/clock/clock.hpp"
#include "base/files/open_files.hpp"
#include "base/log/log.hpp"
#include "control/controller/api.hpp"
#include "control/controller/random_text.hpp"
#include "control/controller/recording.hpp"
#include "control/controller/store_file.hpp"
#include "control/controller/watchdog.hpp"
#include "control/store/sqlite/file_lock.hpp"
#include "control/store/sqlite/sqlite_store.hpp"
#include "control/wire/objects.hpp"
#include "net/http/client.hpp"
#include "net/http/server.hpp"

namespace tutti::controller {
namespace {

constexpr std::size_t cluster_id_bytes = 8;

bool is_loopback(const std::string& host) { return host.starts_with("127.") || host == "::1"; }

struct Listen {
  std::string host;
  std::uint16_t port = 0;
};

// Like a target, but the port may be 0.
Result<Listen> parse_listen(const std::string& text) {
  if (text.ends_with(":0")) {
    auto any_port = parse_listen(text.substr(0, text.size() - 1) + "1");
    if (!any_port) return any_port;
    return Listen{any_port->host, 0};
  }
  auto target = net::parse_target(text);
  if (!target) return std::move(target).error().within("--listen");
  return Listen{target->host, target->port};
}

Result<> check_exposure(const ControllerOptions& options, const std::string& host) {
  if (options.tls_certificate.empty() != options.tls_key.empty()) {
    return invalid("a certificate and its key go together")
        .remedy("give both --tls-certificate and --tls-key");
  }
  if (is_loopback(host) || !options.tls_certificate.empty()) return {};
  return invalid("tokens would cross the network in the clear")
      .within("--listen " + options.listen)
      .remedy("give --tls-certificate and --tls-key, or listen on 127.0.0.1");
}

// The issuer's word is believed, and there is nothing to give for it.
}  // namespace

Result<> init_folder(const std::string& folder) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return failed(failure.message()).within("cannot make " + folder);
  ::chmod(folder.c_str(), 0700);
  const bool used = std::filesystem::exists(store_file(folder), failure);
  if (auto made = make_token(folder + "/admin.token", used); !made) return made;
  return make_token(folder + "/join.token", used);
}

std::optional<pid_t> folder_holder(const std::string& folder) {
  const std::string store = store_file(folder);
  // The second is taken first, and may be gone.
  const auto holder = store::FileLock::holder_of(store, store + ".lock");
  return holder ? holder : store::FileLock::holder_of(store + ".lock", store + ".lock");
}

Result<> run_controller(const ControllerOptions& options,
                        const std::function<void(const std::string&)>& ready) {
  auto listen = parse_listen(options.listen);
  if (!listen) return std::move(listen).error();
  if (auto safe = check_exposure(options, listen->host); !safe) return safe;
  if (auto sound = check_login(options.login); !sound) return sound;
  const std::string remedy = "`tutti controller init --data " + options.folder + "` makes the tokens";
  auto admin = read_token(options.folder + "/admin.token");
  if (!admin) return std::move(admin).error().remedy(remedy);
  auto join = read_token(options.folder + "/join.token");
  if (!join) return std::move(join).error().remedy(remedy);
  auto store =
      store::SqliteStore::open(store_file(options.folder),
                               {.kept_key = wire::cluster_key(), .accept_older = options.accept_older_store});
  if (!store) return std::move(store).error();
  auto new_cluster_id = random_hex(cluster_id_bytes);
  if (!new_cluster_id) return std::move(new_cluster_id).error();

  std::optional<Recording> recording;
  Core::Ended ended;
  if (!options.record.empty()) {
    auto opened = Recording::open(options.record);
    if (!opened) return std::move(opened).error();
    recording.emplace(std::move(*opened));
    ended = [&](const cluster::Job& job) { recording->ended(job); };
  }

  ::signal(SIGPIPE, SIG_IGN);
  net::Loop loop;
  Hub* hub_address = nullptr;
  Api* api_address = nullptr;
  const auto deliver = [&](driver::Delivery delivery) {
    auto shared = std::make_shared<driver::Delivery>(std::move(delivery));
    loop.post([&hub_address, &api_address, shared] {
      api_address->change(shared->doors);
      hub_address->deliver(std::move(*shared));
    });
  };
  WatchedStore watched_store(**store, now_steady);
  Watchdog watchdog(watched_store, store_file(options.folder), now_steady,
                    [&loop](std::function<void()> task) { loop.post(std::move(task)); });
  Core core(watched_store, deliver, std::move(ended), std::move(*new_cluster_id), options.keep);
  Hub hub(loop, core);
  hub_address = &hub;
  const auto per_second = static_cast<double>(options.requests_per_second);
  Explainer explainer;
  Janitor janitor(core, {.folder = options.folder,
                         .blobs_bytes_max = options.keep_blobs,
                         .blobs_age_max = options.keep_blobs_age});
  Api api(core, hub, explainer, janitor,
          {.tokens = {std::move(*admin), std::move(*join)},
           .blob_folder = options.folder + "/blobs",
           .requests = {.per_second = per_second, .burst = 2 * per_second},
           .login = options.login,
           .give_token = gives_tokens(core)});
  api_address = &api;
  net::ServerOptions port;
  port.address = listen->host;
  port.port = listen->port;
  port.certificate_file = options.tls_certificate;
  port.key_file = options.tls_key;
  net::limit_connections(port, files::files_to_give(files::raise_open_files().most));
  port.on_let_go = [](const std::string& remote, std::size_t bytes) {
    log::warning("somebody at {} reads too slowly and is let go: {} bytes waited", remote, bytes);
  };
  port.on_crowded = [](const std::string& remote) {
    log::warning("a request of somebody at {} is refused: too much is being sent at once", remote);
  };
  port.on_shut = [](const std::string& why) {
    log::error("nobody can connect now, and it is tried again: {}", why);
  };
  port.on_lost = [](const std::string& remote, const std::string& why) {
    log::error("the connection of somebody at {} has ended: {}", remote, why);
  };
  port.headers = {net::cluster_header};
  port.cluster = [&core] { return core.cluster_id(); };
  auto server = net::Server::listen(
      loop, port,
      [&](const std::shared_ptr<net::Exchange>& exchange) { api.handle(watchdog.watch(exchange)); },
      [&](const net::Request& head) { return api.admit(head); });
  if (!server) return std::move(server).error();
  if (auto started = core.start(); !started) return started;
  api.change(core.doors_known());
  hub.start();
  janitor.start();
  const auto looks = loop.every(watchdog_looks_every, [&watchdog] {
    if (const std::string said = watchdog.look(); !said.empty()) log::warning("{}", said);
  });
  const auto signals = loop.when_asked_to_end([&](int signal) {
    log::warning("this controller ends: {}; ranks run on", ::strsignal(signal));
    loop.stop();
  });
  const std::string address = listen->host + ":" + std::to_string((*server)->port());
  log::info("cluster {}: listening on {}", core.cluster_id(), address);
  ready(address);
  loop.run();
  api.stop();
  janitor.stop();
  core.stop();
  explainer.stop();
  return {};
}

}  // namespace tutti::controller
