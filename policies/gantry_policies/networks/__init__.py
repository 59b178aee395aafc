"""Networks that look at elevation maps and rasters."""

from gantry_policies.networks.cost import NetworkCost as NetworkCost
from gantry_policies.networks.cost import network_cost as network_cost
from gantry_policies.networks.encoding import Encoding as Encoding
from gantry_policies.networks.layout import MAP_TERM as MAP_TERM
from gantry_policies.networks.layout import ObservationLayout as ObservationLayout
from gantry_policies.networks.model import ENCODERS as ENCODERS
from gantry_policies.networks.model import ExportedPolicy as ExportedPolicy
from gantry_policies.networks.model import PerceptiveCritic as PerceptiveCritic
from gantry_policies.networks.model import PerceptiveModel as PerceptiveModel
from gantry_policies.networks.model import attention_map as attention_map
from gantry_policies.networks.moe import MixtureModel as MixtureModel
from gantry_policies.networks.moe import MixtureOfExperts as MixtureOfExperts
from gantry_policies.networks.sizes import AmeCfg as AmeCfg
from gantry_policies.networks.sizes import BevNetCfg as BevNetCfg
from gantry_policies.networks.sizes import WordsNetCfg as WordsNetCfg
