"""The libraries Stillpoint uses, from Debian's -dev packages."""

load(":pkg_config.bzl", "pkg_config_repository")

# Abseil 20220623, which has no absl/log yet. Debian built it without
# instrumentation: TSan does not see what absl::Mutex orders, and reports races
# on all that one guards.
_ABSL = {
    "absl/algorithm:algorithm": "absl_algorithm",
    "absl/algorithm:container": "absl_algorithm_container",
    "absl/base:base": "absl_base",
    "absl/base:config": "absl_config",
    "absl/base:core_headers": "absl_core_headers",
    "absl/base:dynamic_annotations": "absl_dynamic_annotations",
    "absl/base:log_severity": "absl_log_severity",
    "absl/base:prefetch": "absl_prefetch",
    "absl/cleanup:cleanup": "absl_cleanup",
    "absl/container:btree": "absl_btree",
    "absl/container:fixed_array": "absl_fixed_array",
    "absl/container:flat_hash_map": "absl_flat_hash_map",
    "absl/container:flat_hash_set": "absl_flat_hash_set",
    "absl/container:inlined_vector": "absl_inlined_vector",
    "absl/container:node_hash_map": "absl_node_hash_map",
    "absl/container:node_hash_set": "absl_node_hash_set",
    "absl/debugging:failure_signal_handler": "absl_failure_signal_handler",
    "absl/debugging:leak_check": "absl_leak_check",
    "absl/debugging:stacktrace": "absl_stacktrace",
    "absl/debugging:symbolize": "absl_symbolize",
    "absl/flags:commandlineflag": "absl_flags_commandlineflag",
    "absl/flags:config": "absl_flags_config",
    "absl/flags:flag": "absl_flags",
    "absl/flags:marshalling": "absl_flags_marshalling",
    "absl/flags:parse": "absl_flags_parse",
    "absl/flags:reflection": "absl_flags_reflection",
    "absl/flags:usage": "absl_flags_usage",
    "absl/functional:any_invocable": "absl_any_invocable",
    "absl/functional:bind_front": "absl_bind_front",
    "absl/functional:function_ref": "absl_function_ref",
    "absl/hash:hash": "absl_hash",
    "absl/memory:memory": "absl_memory",
    "absl/meta:type_traits": "absl_type_traits",
    "absl/numeric:bits": "absl_bits",
    "absl/numeric:int128": "absl_int128",
    "absl/random:bit_gen_ref": "absl_random_bit_gen_ref",
    "absl/random:distributions": "absl_random_distributions",
    "absl/random:random": "absl_random_random",
    "absl/random:seed_sequences": "absl_random_seed_sequences",
    "absl/status:status": "absl_status",
    "absl/status:statusor": "absl_statusor",
    "absl/strings:cord": "absl_cord",
    "absl/strings:str_format": "absl_str_format",
    "absl/strings:strings": "absl_strings",
    "absl/synchronization:synchronization": "absl_synchronization",
    "absl/time:time": "absl_time",
    "absl/types:any": "absl_any",
    "absl/types:compare": "absl_compare",
    "absl/types:optional": "absl_optional",
    "absl/types:span": "absl_span",
    "absl/types:variant": "absl_variant",
    "absl/utility:utility": "absl_utility",
}

def debian_packages():
    """Declares the libraries under the names MODULE.bazel gives them."""
    pkg_config_repository(
        name = "com_google_absl",
        debian_package = "libabsl-dev",
        labels = _ABSL,
        probe = "absl_base",
    )
    pkg_config_repository(
        name = "com_google_googletest",
        debian_package = "libgmock-dev libgtest-dev",
        # Upstream's two targets hold GoogleMock as well.
        labels = {
            ":gtest": "gmock",
            ":gtest_main": "gmock_main",
        },
        probe = "gmock",
    )
    pkg_config_repository(
        name = "com_google_benchmark",
        debian_package = "libbenchmark-dev",
        labels = {
            ":benchmark": "benchmark",
            ":benchmark_main": "benchmark_main",
        },
        probe = "benchmark",
        without_pc = {"benchmark_main": ["benchmark"]},
    )
