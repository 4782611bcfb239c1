"""What tests of a store's copies need besides the store that all share."""

from tests.second_store import other_store as other_store
from tests.second_store import second_store as second_store
