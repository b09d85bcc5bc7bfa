"""Hydra's part: composing the configuration, and its errors in words that help.

Hydra's own errors come as stack traces or as lists of options; here they become one ConfigError
that names what was meant.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib import resources

import hydra
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import ConfigError, unknown

CONFIG_PATH = "pkg://conf"
_NO_SUCH_KEY = re.compile(r"Could not override '([^']+)'")
FLAGS = {"--dry-run": "dry_run=true"}
"""Flags that stand for an override."""


def run_application(
    task: Callable[[DictConfig], None], argv: list[str], config_name: str = "config"
) -> None:
    """Compose the configuration `config_name` from the command line and call `task` with it.

    Hydra's own flags (`--help`, `--cfg job`, `--multirun`) work as usual. Raises ConfigError for
    what Hydra refuses, and the first exception that `task` raised.
    """
    raised: list[Exception] = []

    def guarded(cfg: DictConfig) -> None:
        # Hydra would print a line of its own above the error.
        try:
            task(cfg)
        except Exception as error:
            raised.append(error)

    # Hydra prints errors itself unless it is asked for the exceptions.
    os.environ["HYDRA_FULL_ERROR"] = "1"
    application = hydra.main(version_base="1.3", config_path=CONFIG_PATH, config_name=config_name)
    before = sys.argv
    sys.argv = [before[0], *(FLAGS.get(word, word) for word in argv)]
    try:
        application(guarded)()
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, config_name) from error
    finally:
        sys.argv = before
    if raised:
        raise raised[0]


def _options(group: str) -> list[str]:
    """Names of the files in a group of the configuration."""
    folder = resources.files("conf") / group
    if not folder.is_dir():
        return []
    return [f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")]


def _main_config(name: str) -> object:
    text = (resources.files("conf") / f"{name}.yaml").read_text(encoding="utf-8")
    return OmegaConf.to_container(OmegaConf.create(text))


def _keys(config: object, prefix: str = "") -> Iterator[str]:
    """Dotted names of all values of a configuration."""
    if not isinstance(config, dict):
        return
    for key, value in config.items():
        yield f"{prefix}{key}"
        yield from _keys(value, f"{prefix}{key}.")


def explain(error: Exception, config_name: str = "config") -> ConfigError:
    """The ConfigError for an error of Hydra or OmegaConf."""
    if isinstance(error, MissingConfigException) and error.missing_cfg_file:
        missing = error.missing_cfg_file
        if isinstance(missing, str) and "/" in missing:
            group, _, option = missing.rpartition("/")
            return unknown(group, option, _options(group), f"{group}={option}")
    override = _NO_SUCH_KEY.search(str(error))
    if override:
        return unknown(
            "key", override.group(1), _keys(_main_config(config_name)), "The command line"
        )
    cause = error.__cause__
    lines = [line.strip() for line in f"{error}\n{cause or ''}".splitlines() if line.strip()]
    text = " ".join(dict.fromkeys(lines[:3]))
    return ConfigError(f"The configuration cannot be composed: {text}")
