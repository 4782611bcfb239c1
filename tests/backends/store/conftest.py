"""What tests of a store's copies need besides the store that all share."""

from tests.second_store import other_store as other_store
from tests.second_store import second_store as second_store
from tests.store_cluster import cluster as cluster
from tests.store_cluster import started_cluster as started_cluster
